"""What can go wrong, beyond wrong arguments (`ValueError`, `TypeError`) and redis-py's own errors.

Errors of the connection and of the server pass through unchanged: a saver that turned them into
`None` would make an unreachable server look like an empty thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "CheckpointerError",
    "ClosedError",
    "ConflictError",
    "DamagedCheckpointError",
    "NotAcknowledgedError",
    "PlaintextRecordError",
    "StorageVersionError",
    "ValueTooLargeError",
]


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


class ConflictError(CheckpointerError):
    """Somebody else has written to the thread since this run read it. Nothing was written (`on_conflict="raise"`).

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint that was refused.
        parent_id: What the run went on from; `""` if it began the namespace.
        newest_id: The newest of the namespace by now; `""` if it has none any more.
    """

    def __init__(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str, parent_id: str, newest_id: str) -> None:
        self._given = (thread_id, checkpoint_ns, checkpoint_id, parent_id, newest_id)
        begun = f"from checkpoint {parent_id!r}" if parent_id else "when there was none"
        now = f"the newest is {newest_id!r} by now" if newest_id else "there is none any more"
        super().__init__(
            f"thread {thread_id!r}, namespace {checkpoint_ns!r}, was written to meanwhile: this run began {begun}, and "
            f"{now}. Checkpoint {checkpoint_id!r} was not stored: begin the run again, from the thread as it is."
        )
        self.thread_id = thread_id
        self.checkpoint_ns = checkpoint_ns
        self.checkpoint_id = checkpoint_id
        self.parent_id = parent_id
        self.newest_id = newest_id


class NotAcknowledgedError(CheckpointerError):
    """Too few have acknowledged a write in time (`ack=Ack(...)`). It stands on the primary, and may yet reach others.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint that was put, or whose writes were.
        replicas: How many replicas have it; 0 where the server did not say.
    """

    def __init__(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str, what: str, replicas: int = 0) -> None:
        self._given = (thread_id, checkpoint_ns, checkpoint_id, what, replicas)
        super().__init__(
            f"the write to checkpoint {checkpoint_id!r} of thread {thread_id!r}, namespace {checkpoint_ns!r}, stands "
            f"on the primary, but {what}. A failover now may lose it; to repeat the call is safe."
        )
        self.thread_id = thread_id
        self.checkpoint_ns = checkpoint_ns
        self.checkpoint_id = checkpoint_id
        self.replicas = replicas


class PlaintextRecordError(CheckpointerError):
    """A record is in clear where only encrypted ones are read: see `encryption.StrictEncryptedSerializer`.

    Attributes:
        kind: What the record says it is.
    """

    def __init__(self, kind: str) -> None:
        self._given = (kind,)
        super().__init__(
            f"a record says that it is {kind!r}, which is not encrypted: it was written by a saver without encryption, "
            "or slipped in by somebody who may write to the server. LangGraph's own EncryptedSerializer would read it."
        )
        self.kind = kind


class ValueTooLargeError(CheckpointerError):
    """A value is larger than the saver's `max_value_bytes`, or than servers take. Nothing was written.

    Attributes:
        thread_id: The thread.
        channel: Whose value it is; `""` for the metadata and versions.
        size_bytes: Of the value, as serialised.
        most_bytes: The limit.
    """

    def __init__(self, thread_id: str, channel: str, size_bytes: int, most_bytes: int) -> None:
        self._given = (thread_id, channel, size_bytes, most_bytes)
        what = f"the value for channel {channel!r} has" if channel else "metadata and versions have"
        super().__init__(
            f"{what} {size_bytes} bytes, in thread {thread_id!r}, more than the {most_bytes} that are allowed: keep "
            "large data elsewhere and their address in the state, or raise max_value_bytes. Nothing was written."
        )
        self.thread_id = thread_id
        self.channel = channel
        self.size_bytes = size_bytes
        self.most_bytes = most_bytes


EVICTED = (
    "Keys of this thread were evicted (see maxmemory-policy) or changed by hand; an older checkpoint may be whole, or "
    "delete the thread."
)
UNREADABLE = (
    "It was changed since it was written, or written with another serialiser or key than this saver has; an older "
    "checkpoint may be whole."
)


class DamagedCheckpointError(CheckpointerError):
    """A checkpoint is there, but a part of it is missing, or cannot be read: `__cause__` says why, where there is more.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint, or `""` where even its id is lost.
        what: What is wrong.
        channels: The channels whose values it is about; empty if it is about something else.
    """

    def __init__(
        self,
        thread_id: str,
        checkpoint_ns: str,
        checkpoint_id: str,
        what: str,
        channels: Sequence[str] = (),
        is_unreadable: bool = False,
    ) -> None:
        self._given = (thread_id, checkpoint_ns, checkpoint_id, what, tuple(channels), is_unreadable)
        names = ": " + ", ".join(map(repr, channels)) if channels else ""
        super().__init__(
            f"checkpoint {checkpoint_id!r} of thread {thread_id!r}, namespace {checkpoint_ns!r}, is damaged: "
            f"{what}{names}. {UNREADABLE if is_unreadable else EVICTED}"
        )
        self.thread_id = thread_id
        self.checkpoint_ns = checkpoint_ns
        self.checkpoint_id = checkpoint_id
        self.what = what
        self.channels = tuple(channels)
