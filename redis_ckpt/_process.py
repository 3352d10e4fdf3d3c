"""Which process this is, without asking the system at each call: forked children count one more."""

from __future__ import annotations

import os
import random


class _Process:
    def __init__(self) -> None:
        self.number = 0
        self.dice = random.Random()  # of our own: a caller may seed the shared one

    def begin(self) -> None:
        """In a forked child, in which nothing else runs yet."""
        self.number += 1
        self.dice = random.Random()


PROCESS = _Process()
"""`number` tells a process from its parent; `dice` has never been thrown elsewhere."""

if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=PROCESS.begin)
