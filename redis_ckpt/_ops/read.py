"""get_tuple, and the decoding of checkpoints that `list` shares with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from redis_ckpt import _codec, _scripts
from redis_ckpt._config import Target, config_of, target_of
from redis_ckpt._flow import Flow
from redis_ckpt._guards import ForkedId
from redis_ckpt._keys import quote, split_checkpoint_field, thread_keys, unquote
from redis_ckpt._known import Known
from redis_ckpt._ops import Store
from redis_ckpt._ops.blobs import Blobs, LostValuesError, known_refs
from redis_ckpt._ops.damage import told, unreadable
from redis_ckpt._ops.history import ancestors_of
from redis_ckpt._versions import next_version
from redis_ckpt.errors import DamagedCheckpointError

if TYPE_CHECKING:
    from redis_ckpt._copies import Copies


class Stored(NamedTuple):
    """One checkpoint as the server answered it."""

    field: bytes
    record: bytes | None
    intact: bool
    blobs: Sequence[bytes | None] | Blobs  # in the order of the record's refs; or those of a whole page
    writes: Sequence[tuple[bytes, bytes | None]]  # name, record
    newest: bytes = b""  # field of the newest of its namespace, where another may have been asked for
    bases: Mapping[bytes, bytes | None] = {}  # what deltas among the blobs are built on, by ref


class Read(NamedTuple):
    """A record read, its values and writes still to be decoded."""

    target: Target
    stored: Stored
    record: _codec.Record

    @property
    def sends_parent(self) -> str:
        """The parent whose writes hold this checkpoint's pending sends, if its format is that old."""
        old = _codec.leaves_sends_in_parent(self.record.checkpoint)
        return unquote(self.record.header.parent) if old else ""


def get_tuple(store: Store, config: RunnableConfig) -> Flow[CheckpointTuple | None]:
    """One checkpoint, without the bytes that are here already. One round trip; one more for formats below 4."""
    target = target_of(config)
    return told(target, _read(store, target, store.expiry.read(config)))


def _read(store: Store, target: Target, idle_ms: int | None) -> Flow[CheckpointTuple | None]:
    known = store.cache.get(target.thread_id, target.checkpoint_ns)
    stored = yield from fetch(store.prefix, [target], idle_ms, known_refs(known))
    if stored[0] is None:
        return None
    read = read_record(store.serde, target.thread_id, stored[0])
    sends = yield from sends_of_parents(store, [read])
    blobs = blobs_of(read, known)
    found = finished(store, read, sends[0], blobs, store.copies if known else None)
    store.cache.put(target.thread_id, target.checkpoint_ns, blobs.found)
    return found


def fetch(
    prefix: bytes, targets: Sequence[Target], idle_ms: int | None = None, known: Sequence[bytes] = ()
) -> Flow[list[Stored | None]]:
    """Several checkpoints, in one round trip.

    Args:
        prefix: Of the keys.
        targets: Which.
        idle_ms: With it the read counts as use of their threads.
        known: The refs of values that are here already.
    """
    replies = yield [
        _scripts.get_tuple(
            thread_keys(prefix, t.thread_id), quote(t.checkpoint_ns), quote(t.checkpoint_id), idle_ms, known
        )
        for t in targets
    ]
    return [None if reply is None else _stored(reply) for reply in replies]


def _stored(reply: list[Any]) -> Stored:
    field, record = reply[:2]
    if record is None:
        return Stored(field, None, False, (), ())
    intact, newest, count = reply[2:5]
    blobs, rest = reply[5 : 5 + count], reply[6 + count :]
    bases, writes = rest[: 2 * reply[5 + count]], rest[2 * reply[5 + count] :]
    return Stored(
        field,
        record,
        bool(intact),
        blobs,
        list(zip(writes[::2], writes[1::2], strict=True)),
        newest,
        dict(zip(bases[::2], bases[1::2], strict=True)),
    )


def read_record(serde: SerializerProtocol, thread_id: str, stored: Stored) -> Read:
    """Read the record of a checkpoint.

    Raises:
        DamagedCheckpointError: The record is gone, or writes of the thread are.
        StorageVersionError: The record is of a newer format.
    """
    ns, checkpoint_id = split_checkpoint_field(stored.field)
    if stored.record is None:
        raise DamagedCheckpointError(thread_id, ns, checkpoint_id, "its record is missing")
    target = Target(thread_id, ns, checkpoint_id)
    try:
        record = _codec.decode_checkpoint(serde, stored.record, target)
    except Exception as error:
        raise unreadable(target, "its record", error) from error
    if not stored.intact or any(write is None for _, write in stored.writes):
        raise DamagedCheckpointError(thread_id, ns, checkpoint_id, "pending writes of the thread are missing")
    return Read(target, stored, record)


def sends_of_parents(store: Store, reads: Sequence[Read]) -> Flow[list[list[Any] | None]]:
    """For each checkpoint of an old format the pending sends, which its parent's writes hold."""
    old = [read for read in reads if read.sends_parent]
    if not old:
        return [None] * len(reads)
    # The walk sees parents, too, that were removed and are only kept for this.
    replies = yield [
        _scripts.history(
            thread_keys(store.prefix, read.target.thread_id),
            quote(read.target.checkpoint_ns),
            quote(read.target.checkpoint_id),
            b"",
            1,
            [quote(TASKS)],
        )
        for read in old
    ]
    sends = {
        read.target: _sends(store.serde, read.target.thread_id, reply)
        for read, reply in zip(old, replies, strict=True)
        if reply is not None  # else it was removed meanwhile
    }
    return [sends.get(read.target) for read in reads]


def _sends(serde: SerializerProtocol, thread_id: str, reply: list[Any]) -> list[Any]:
    """The values of the writes in a reply of `history` that holds one ancestor at the most."""
    if len(reply) == 1:
        _codec.check_format(reply[0], f"a checkpoint of thread {thread_id!r}")
    flat = [part for ancestor in ancestors_of(reply) for part in ancestor.writes]
    pairs = [(name, record) for name, record in zip(flat[::2], flat[1::2], strict=True) if record is not None]
    writes = _codec.decode_writes(pairs, thread_id)
    with _codec.Reader(serde, thread_id) as value_of:
        return [write.value(value_of)[2] for write in writes if write.channel == TASKS]


def blobs_of(read: Read, known: Mapping[str, Known] | None = None) -> Blobs:
    """The values that came with a checkpoint."""
    blobs = read.stored.blobs
    if isinstance(blobs, Blobs):
        return blobs
    records = dict(zip(read.record.header.refs, blobs, strict=True))
    records.update(read.stored.bases)
    return Blobs(records, read.target.thread_id, known)


def finished(
    store: Store, read: Read, sends: list[Any] | None, blobs: Blobs, copies: Copies | None = None
) -> CheckpointTuple:
    """The whole tuple.

    Args:
        store: What the saver's operations share.
        read: The record.
        sends: The pending sends of an old format.
        blobs: The values.
        copies: Messages that may have been met before.

    Raises:
        DamagedCheckpointError: Values are gone, or deltas do not fit what they are built on.
    """
    (thread_id, ns, checkpoint_id), stored, (header, checkpoint, metadata) = read
    pairs = [(name, record) for name, record in stored.writes if record is not None]
    part = "a value"
    with _codec.Reader(store.serde, thread_id, copies) as value_of:
        try:
            values = blobs.values(header.refs, value_of)
            part, value_of.channel = "a write", ""
            writes = [write.value(value_of) for write in _codec.decode_writes(pairs, thread_id)]
        except LostValuesError as error:
            raise DamagedCheckpointError(thread_id, ns, checkpoint_id, error.what, error.channels) from None
        except Exception as error:
            raise unreadable(read.target, part, error, [value_of.channel] if value_of.channel else ()) from error
    checkpoint["id"] = checkpoint_id
    checkpoint["channel_values"] = values
    if sends:
        values[TASKS] = sends
        versions = checkpoint["channel_versions"]
        versions[TASKS] = max(versions.values()) if versions else next_version(None)
    if header.deltas and not values.keys() >= set(map(unquote, header.deltas)) - {TASKS}:
        store.handed_out.put(read.target, True)
    config = read.target.config()
    if store.guards.refuses_conflicts and stored.newest not in (b"", stored.field):
        newest_id = split_checkpoint_field(stored.newest)[1]
        config["configurable"]["checkpoint_id"] = ForkedId.of(checkpoint_id, newest_id)
    return CheckpointTuple(
        config=config,
        checkpoint=checkpoint,  # type: ignore[arg-type]  # a dict of the keys that were put
        metadata=metadata,
        parent_config=config_of(thread_id, ns, unquote(header.parent)) if header.parent else None,
        pending_writes=writes,
    )
