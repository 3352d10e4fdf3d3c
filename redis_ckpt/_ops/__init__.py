"""The operations, each a flow (see `_flow`). They do no I/O and build no names of keys themselves.

Rule 1: check the arguments and serialise before the first `yield`; then nothing half-done can be seen.
Rule 2: one round trip where the contract allows it; loops only over pages.
Rule 3: a reply is decoded here and nowhere else.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from langgraph.checkpoint.serde.base import SerializerProtocol

from redis_ckpt._config import Target
from redis_ckpt._expiry import Expiry


class HandedOut:
    """The last checkpoints that this process was given and whose delta channels it may yet want to rebuild."""

    MOST = 4096

    def __init__(self) -> None:
        self._targets: dict[Target, None] = {}

    def note(self, target: Target) -> None:
        """Remember a checkpoint; the oldest is forgotten."""
        # no lock, which a fork might inherit closed: each step is atomic, and to forget one too many does no harm
        self._targets.pop(target, None)
        self._targets[target] = None
        if len(self._targets) > self.MOST:
            with suppress(RuntimeError, StopIteration):  # another thread was at it
                self._targets.pop(next(iter(self._targets)), None)

    def has(self, target: Target) -> bool:
        """Whether it is among the last."""
        return target in self._targets


class Store(NamedTuple):
    """What the operations of a saver share: where its keys are, how it serialises, how long it keeps."""

    prefix: bytes
    serde: SerializerProtocol
    expiry: Expiry
    handed_out: HandedOut
