"""The operations, each a flow (see `_flow`). They do no I/O and build no names of keys themselves.

Rule 1: check the arguments and serialise before the first `yield`; then nothing half-done can be seen.
Rule 2: one round trip where the contract allows it; loops only over pages.
Rule 3: a reply is decoded here and nowhere else.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from langgraph.checkpoint.serde.base import SerializerProtocol

from redis_ckpt._config import Target
from redis_ckpt._expiry import Expiry
from redis_ckpt._known import Cache

if TYPE_CHECKING:
    from redis_ckpt._copies import Copies

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The last few thousand pairs that were put: what a process remembers and may forget.

    No lock, which a fork might inherit closed: each step is atomic, and to forget one too many does no harm.
    """

    MOST = 4096

    def __init__(self) -> None:
        self._pairs: dict[K, V] = {}

    def put(self, key: K, value: V) -> None:
        """Remember a pair; the oldest is forgotten."""
        self._pairs.pop(key, None)
        self._pairs[key] = value
        if len(self._pairs) > self.MOST:
            with suppress(RuntimeError, StopIteration):  # another thread was at it
                self._pairs.pop(next(iter(self._pairs)), None)

    def get(self, key: K) -> V | None:
        """The value of a key; None if it is not, or no longer, among them."""
        return self._pairs.get(key)

    def forget(self, key: K) -> None:
        """Forget a pair."""
        self._pairs.pop(key, None)


class Store(NamedTuple):
    """What the operations of a saver share: where its keys are, how it serialises, how long it keeps, what it knows."""

    prefix: bytes
    serde: SerializerProtocol
    expiry: Expiry
    cache: Cache
    handed_out: Recent[Target, bool]  # what this process was given, with delta channels that it may yet rebuild
    copies: Copies | None = None  # messages of threads that come back
