"""When checkpoints were made: by the clock in their UUIDv6, else by their `ts`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from uuid import UUID

from redis_ckpt import _codec
from redis_ckpt._flow import Flow, Plain
from redis_ckpt._keys import split_checkpoint_field, thread_keys
from redis_ckpt._ops import Store

GREGORIAN = datetime(1582, 10, 15, tzinfo=timezone.utc)  # where the clock of a UUID of version 1 or 6 begins
RECORDS_A_TRIP = 100


def made_at(checkpoint_id: str) -> datetime | None:
    """The time in a UUIDv6, or None for other ids."""
    try:
        uuid = UUID(checkpoint_id)
        if uuid.version != 6:
            return None
        ticks = (uuid.int >> 80) << 12 | (uuid.int >> 64) & 0xFFF  # 100 ns each, most significant first
        return GREGORIAN + timedelta(microseconds=ticks // 10)
    except (ValueError, OverflowError):
        return None


def said_at(ts: object) -> datetime | None:
    """The time that a `ts` says, in UTC if it names no zone; None if it says none."""
    try:
        at = datetime.fromisoformat(str(ts).replace("Z", "+00:00"))
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=timezone.utc)


class Ages:
    """When the checkpoints of a thread were made, by field."""

    def __init__(self) -> None:
        self._said: dict[bytes, datetime | None] = {}

    def at(self, name: bytes) -> datetime | None:
        """The time of a checkpoint; None where it is not known."""
        return self._said[name] if name in self._said else made_at(split_checkpoint_field(name)[1])

    def ask(self, store: Store, thread_id: str, names: Iterable[bytes]) -> Flow[None]:
        """Read the `ts` of those whose ids have no time. One round trip for each 100 of them, none for UUIDv6."""
        asked = [name for name in names if made_at(split_checkpoint_field(name)[1]) is None]
        key = thread_keys(store.prefix, thread_id).checkpoints
        for start in range(0, len(asked), RECORDS_A_TRIP):
            part = asked[start : start + RECORDS_A_TRIP]
            (records,) = yield [Plain(("HMGET", key, *part))]
            for name, record in zip(part, records, strict=True):
                if record is not None:
                    what = f"checkpoint {split_checkpoint_field(name)[1]!r} of thread {thread_id!r}"
                    _codec.check_format(record, what)
                    self._said[name] = said_at(_codec.decode_ts(store.serde, record))
