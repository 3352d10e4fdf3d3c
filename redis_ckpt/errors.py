"""What can go wrong, beyond wrong arguments (`ValueError`, `TypeError`) and redis-py's own errors.

Errors of the connection and of the server pass through unchanged: a saver that turned them into
`None` would make an unreachable server look like an empty thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["CheckpointerError", "ClosedError", "DamagedCheckpointError", "StorageVersionError"]


class CheckpointerError(Exception):
    """The base of this package's errors."""

    _given: tuple[Any, ...] | None = None  # what the class was called with, where that is not the text

    def __reduce__(self) -> Any:
        """Errors cross the borders of processes: pools and task queues pickle them."""
        return super().__reduce__() if self._given is None else (type(self), self._given)


class ClosedError(CheckpointerError):
    """The saver was used after it was closed. Nothing was sent."""

    def __init__(self, saver: str) -> None:
        self._given = (saver,)
        super().__init__(
            f"{saver} is closed: make a new one, or keep using it inside its `with` block. Nothing was sent."
        )


class StorageVersionError(CheckpointerError):
    """A stored record is of a format that this version of the library does not know.

    Attributes:
        stored: The format version found in the record.
        known: The newest format version that this library reads.
    """

    def __init__(self, what: str, stored: str, known: str) -> None:
        self._given = (what, stored, known)
        super().__init__(
            f"{what} is stored in format {stored!r}, but this redis-ckpt reads formats up to {known!r}: "
            "a newer version wrote it, so upgrade redis-ckpt here. Nothing was changed."
        )
        self.stored = stored
        self.known = known


class DamagedCheckpointError(CheckpointerError):
    """A checkpoint is there, but a part of it is not: it was evicted, or deleted by hand.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint, or `""` where even its id is lost.
        channels: The channels whose values are missing; empty if something else is.
    """

    def __init__(
        self,
        thread_id: str,
        checkpoint_ns: str,
        checkpoint_id: str,
        missing: str,
        channels: Sequence[str] = (),
    ) -> None:
        self._given = (thread_id, checkpoint_ns, checkpoint_id, missing, tuple(channels))
        names = ": " + ", ".join(map(repr, channels)) if channels else ""
        super().__init__(
            f"checkpoint {checkpoint_id!r} of thread {thread_id!r}, namespace {checkpoint_ns!r}, is damaged: "
            f"{missing} missing{names}. Keys of this thread were evicted (see maxmemory-policy) or changed by "
            "hand; an older checkpoint may be whole, or delete the thread."
        )
        self.thread_id = thread_id
        self.checkpoint_ns = checkpoint_ns
        self.checkpoint_id = checkpoint_id
        self.channels = tuple(channels)
