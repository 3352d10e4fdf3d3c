"""What a saver was asked to refuse, to wait for or to pass over: conflicts, large values, acknowledgements, damage."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig

from redis_ckpt import _codec
from redis_ckpt._ack import Ack
from redis_ckpt._config import Target
from redis_ckpt._flow import Wait
from redis_ckpt._keys import US, checkpoint_field
from redis_ckpt._recent import Recent
from redis_ckpt.errors import ValueTooLargeError

SERVER_BULK_BYTES = 512 * 2**20  # what a server takes in one piece unless it is told otherwise: proto-max-bulk-len
ON_CONFLICT = ("ignore", "raise")
ON_DAMAGE = ("raise", "previous")
BIG_BYTES = 2**20  # a checkpoint that brings more is spoken of in the log

CHECKED_SOURCES = frozenset({"input", "loop"})  # not "update" and "fork", by which LangGraph forks on purpose
REPLAY = "__pregel_replay_state"  # LangGraph's own, in the configs of subgraphs of a run that travels in time

logger = logging.getLogger("redis_ckpt")


class Guards(NamedTuple):
    """What a saver looks out for."""

    ack: Ack | None
    refuses_conflicts: bool
    most_value_bytes: int
    spoken_of: Recent[str, bool]  # what the log has said already
    skips_damage: bool = False

    @classmethod
    def of(cls, ack: Any, on_conflict: Any, max_value_bytes: Any, on_damage: Any = "raise") -> Guards:
        """From the arguments of a saver, checked.

        Raises:
            TypeError: One is of another type.
            ValueError: One is out of range.
        """
        if ack is not None and not isinstance(ack, Ack):
            raise TypeError(f"ack must be an Ack(...), not {ack!r}")
        if on_conflict not in ON_CONFLICT:
            raise ValueError(f"on_conflict must be one of {', '.join(map(repr, ON_CONFLICT))}, not {on_conflict!r}")
        if on_damage not in ON_DAMAGE:
            raise ValueError(f"on_damage must be one of {', '.join(map(repr, ON_DAMAGE))}, not {on_damage!r}")
        most = SERVER_BULK_BYTES if max_value_bytes is None else max_value_bytes
        if isinstance(most, bool) or not isinstance(most, int):
            raise TypeError(f"max_value_bytes must be a number of bytes, or None, not {most!r}")
        if most < 1:
            raise ValueError(f"max_value_bytes must be 1 or more, not {most!r}")
        return cls(ack, on_conflict == "raise", most, Recent(), on_damage == "previous")

    @property
    def waits(self) -> list[Wait]:
        """What is sent behind a write."""
        return [] if self.ack is None else [self.ack.command]

    def check_size(self, thread_id: str, channel: str, size_bytes: int) -> None:
        """Refuse a value that is too large.

        Raises:
            ValueTooLargeError: It names the channel and both sizes.
        """
        if size_bytes > self.most_value_bytes:
            raise ValueTooLargeError(thread_id, channel, size_bytes, self.most_value_bytes)

    def check_writes(self, thread_id: str, channels: Iterable[str], records: Iterable[bytes]) -> None:
        """Refuse writes with a value that is too large.

        Raises:
            ValueTooLargeError: It names the channel and both sizes.
        """
        for channel, record in zip(channels, records, strict=True):
            if len(record) > self.most_value_bytes:  # with what stands before the value
                self.check_size(thread_id, channel, len(record.split(US, 3)[3]))

    def check_checkpoint(self, target: Target, encoded: _codec.Encoded) -> None:
        """Refuse a checkpoint with a value that is too large, and speak once of a thread whose checkpoints are big.

        Raises:
            ValueTooLargeError: It names the channel and both sizes.
        """
        size_bytes = len(encoded.record[2])
        self.check_size(target.thread_id, "", size_bytes)
        for value in encoded.values.values():
            size_bytes += len(value.data)
            self.check_size(target.thread_id, value.channel, len(value.data))
        if size_bytes > BIG_BYTES and not self.spoken_of.get(target.thread_id):
            self.spoken_of.put(target.thread_id, True)
            largest = max(encoded.values.values(), key=lambda value: len(value.data), default=None)
            what = "" if largest is None else f", {len(largest.data)} of them in channel {largest.channel!r}"
            logger.warning(
                "%s has %d bytes that are new with it%s: large data are better kept elsewhere, with their address in "
                "the state (said once for each thread)",
                target,
                size_bytes,
                what,
            )


class ForkedId(str):
    """The id of a checkpoint that was asked for by its id when it was not the newest: a run from it forks on purpose.

    LangGraph hands the config that a read returns on to the first put behind it, and such an id with it.
    """

    __slots__ = ("newest_id",)

    newest_id: str

    @classmethod
    def of(cls, checkpoint_id: str, newest_id: str) -> ForkedId:
        """An id, and that of the newest of its namespace when it was read."""
        forked = cls(checkpoint_id)
        forked.newest_id = newest_id
        return forked


def guard(config: RunnableConfig, target: Target, metadata: Mapping[str, Any]) -> bytes:
    """What `put` is told about the newest of the namespace; see the script."""
    configurable = config["configurable"]
    if metadata.get("source") not in CHECKED_SOURCES or configurable.get(REPLAY):
        return b""
    parent = configurable.get("checkpoint_id") or ""
    expected = parent.newest_id if isinstance(parent, ForkedId) else str(parent)
    return b"=" + (checkpoint_field(target.checkpoint_ns, expected) if expected else b"")
