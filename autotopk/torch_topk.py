"""torch.topk itself, whatever a program binds that name to, before or after it imports this package."""

from collections.abc import Callable
from typing import Any

import torch

torch_topk: Callable[..., Any] = getattr(torch._C._VariableFunctions, "topk", torch.topk)
"""What answers wherever no kernel does, what tuning measures against, and what right answers are."""
