"""What a forked child must not share with its parent, made anew at the fork, when no other thread runs in it."""

from __future__ import annotations

import os
import random
import weakref
from typing import Protocol


class Forked(Protocol):
    """What has locks, connections or loops."""

    def begin_in_child(self) -> None:
        """Begin anew. No lock of the parent may be taken: another thread may have held it."""


_forked: weakref.WeakSet[Forked] = weakref.WeakSet()

dice = random.Random()
"""For names that no other process may give: of our own, since a caller may seed the shared one."""


def at_fork(one: Forked) -> None:
    """Tell it of every fork for as long as it lives."""
    _forked.add(one)


def _begin_in_child() -> None:
    dice.seed()
    for one in list(_forked):
        one.begin_in_child()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_begin_in_child)
