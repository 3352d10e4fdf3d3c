"""A small memory of a process."""

from __future__ import annotations

from contextlib import suppress
from typing import Generic, TypeVar

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
