"""What torch calls at the end of its own import, as it does for every package with an entry point for that."""

from importlib import import_module
from typing import Any

from autotopk import settings
from autotopk.errors import warn


def autoload() -> None:
    """Offer our operators, and patch torch.topk where `AUTOTOPK_PATCH` asks for it; never raises."""
    try:
        offer_operators()
        if settings.patches():
            import_module("autotopk.runtime.patching").patch()
    except Exception as error:  # would be the end of `import torch`
        warn(f"torch goes without autotopk: {error!r}")


def offer_operators() -> None:
    """Let `torch.ops.autotopk` have its operators without importing more than this until one is used."""
    import torch

    namespace: Any = getattr(torch._ops, "_OpNamespace", None)
    if namespace is None or "autotopk" in vars(torch.ops):
        return

    class Offered(namespace):  # type: ignore[misc]
        __module__ = namespace.__module__  # of which operators make their names

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("__"):
                import_module("autotopk.runtime.api")  # registers them
            return super().__getattr__(name)

    setattr(torch.ops, "autotopk", Offered("autotopk"))  # noqa: B010
