"""What a forked child has to forget: threads and other processes, which are its parent's."""

import os
import weakref
from typing import Protocol


class Forgetful(Protocol):
    """Something that has such."""

    def forget(self) -> None:
        """In a forked child: do without them."""


_all: "weakref.WeakSet[Forgetful]" = weakref.WeakSet()


def forgets(one: Forgetful) -> None:
    """Have it forget in every child that this process forks, as long as it lives."""
    _all.add(one)


def _forget_all() -> None:
    for one in list(_all):
        one.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
