"""put and put_writes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
)

from redis_ckpt import _codec, _scripts
from redis_ckpt._config import Target, target_of
from redis_ckpt._flow import Flow, Reply, Trip
from redis_ckpt._guards import guard
from redis_ckpt._keys import US, checkpoint_field, quote, run_key, thread_keys, unquote
from redis_ckpt._ops import Store
from redis_ckpt._ops.blobs import Draft
from redis_ckpt._recent import Recent
from redis_ckpt._shapes import IMMUTABLE
from redis_ckpt.errors import CheckpointerError, ConflictError, DamagedCheckpointError

ORDER_LOST, PARENT_REMOVED = 0, -1  # what `put` answers in place of a count


class RecentRuns:
    """The (run, thread) pairs that this process has noted lately: a run is noted once an hour, not each put."""

    SECONDS = 3600.0  # far below the life of the key, so that the key of a long run never expires under it

    def __init__(self) -> None:
        self._noted: Recent[tuple[str, str], float] = Recent()

    def is_noted(self, run_id: str, thread_id: str) -> bool:
        """Whether the pair was noted within the hour."""
        at = self._noted.get((run_id, thread_id))
        return at is not None and time.monotonic() - at < self.SECONDS

    def note(self, run_id: str, thread_id: str) -> None:
        """Remember the pair."""
        self._noted.put((run_id, thread_id), time.monotonic())


class Stored(NamedTuple):
    """What a put has done: the checkpoint, and how many its namespace has now, if that was asked."""

    target: Target
    in_namespace: int


def put(
    store: Store,
    runs: RecentRuns,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
    counts: bool = False,
) -> Flow[Stored]:
    """Store a checkpoint. One round trip; one more if it refers to blobs, or to bases of deltas, that are not there.

    With `counts` it tells how many checkpoints the namespace has then.
    """
    thread_id, ns, _ = target_of(config)
    if not checkpoint["id"]:
        raise ValueError(f"the checkpoint for thread {thread_id!r} has no id")
    target = Target(thread_id, ns, str(checkpoint["id"]))
    idle_ms = store.expiry.written(config)
    encoded = _codec.encode_checkpoint(store.serde, config, checkpoint, metadata, new_versions)
    keys = thread_keys(store.prefix, thread_id)
    field = checkpoint_field(ns, target.checkpoint_id)
    store.guards.check_checkpoint(target, encoded)
    draft = Draft(store.cache, target, encoded.values)
    others = _Others(store, draft, checkpoint["channel_values"], encoded.others)
    records = draft.records
    expected = guard(config, target, metadata) if store.guards.refuses_conflicts else b""

    def calls() -> Trip:
        call = _scripts.put(
            keys, field, encoded.record, encoded.emptied, encoded.quiet, records.items(), idle_ms, counts, expected
        )
        return [call, *store.guards.waits]

    run_id = encoded.run_id
    if run_id and not runs.is_noted(run_id, thread_id):
        # The note goes first: naming a thread that then gets nothing does no harm.
        _, *replies = yield [_scripts.note_run(run_key(store.prefix, run_id), quote(thread_id)), *calls()]
        runs.note(run_id, thread_id)
    else:
        replies = yield calls()
    while isinstance(missing := replies[0], list):
        for ref in missing:  # rare: values of another saver, or of a thread that was deleted meanwhile
            if not draft.send_whole(ref):
                records[ref] = others.record(ref)
        replies = yield calls()
    _check(config, target, replies[0])
    draft.remember()
    if store.guards.ack is not None:
        store.guards.ack.check(replies[1], target)
    return Stored(target, replies[0])


def _check(config: RunnableConfig, target: Target, reply: Reply) -> None:
    """Look at the answer to a put.

    Raises:
        CheckpointerError: Nothing was written, and why.
    """
    thread_id, ns, checkpoint_id = target
    if isinstance(reply, bytes):
        newest = unquote(reply.partition(US)[2])
        raise ConflictError(*target, str(config["configurable"].get("checkpoint_id") or ""), newest)
    if reply == ORDER_LOST:
        raise DamagedCheckpointError(thread_id, ns, "", "the order of its checkpoints is missing")
    if reply == PARENT_REMOVED:
        raise CheckpointerError(
            f"the parent of checkpoint {checkpoint_id!r} of thread {thread_id!r}, namespace {ns!r}, is not "
            "there any more (pruned, deleted or expired), and its delta channels would be rebuilt from that one's "
            "writes. Nothing was written: begin the run again, from a checkpoint that is there."
        )


class _Others:
    """The values of a put that are not new, as they are at the call: the server hardly ever lacks one, but while it is
    asked the caller may change them.

    What cannot be changed, or is known as bytes, need not be taken. Of the rest lists and dicts are serialised in one
    go; others each, since their (type, bytes) need not be the same inside of a list.
    """

    def __init__(self, store: Store, draft: Draft, values: Mapping[str, Any], channels: Mapping[bytes, str]) -> None:
        self._serde, self._draft, self._channels = store.serde, draft, channels
        self._values = {ref: values[channel] for ref, channel in channels.items()}
        self._records: dict[bytes, bytes] = {}
        self._together: list[bytes] = []
        for ref, value in self._values.items():
            kind = type(value)
            if kind in IMMUTABLE or draft.knows(ref, channels[ref]):
                continue
            if kind is list or kind is dict:
                self._together.append(ref)
            else:
                with suppress(TypeError):  # if it is wanted, the same is said once more
                    self._records[ref] = self._encoded(ref)
        self._dumped: tuple[str, bytes] | None = None
        if self._together:
            with suppress(Exception):
                name, data = self._serde.dumps_typed([self._values[ref] for ref in self._together])
                self._dumped = name, bytes(data)

    def record(self, ref: bytes) -> bytes:
        """The record of a value as a whole."""
        if self._dumped is not None:
            self._values.update(zip(self._together, self._serde.loads_typed(self._dumped), strict=True))
            self._dumped = None
        return self._records.get(ref) or self._draft.record_of(ref, self._channels[ref]) or self._encoded(ref)

    def _encoded(self, ref: bytes) -> bytes:
        return _codec.encode_value(self._serde, self._channels[ref], ref, self._values[ref]).record


def put_writes(
    store: Store,
    config: RunnableConfig,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
) -> Flow[None]:
    """Store the writes of one task. One round trip, none if there are no writes."""
    thread_id, ns, checkpoint_id = target_of(config)
    if not checkpoint_id:
        raise ValueError(f"put_writes for thread {thread_id!r} needs the checkpoint_id that the writes belong to")
    idle_ms = store.expiry.written(config)
    records = [
        (WRITES_IDX_MAP.get(channel, at), _codec.encode_write(store.serde, channel, task_path, value))
        for at, (channel, value) in enumerate(writes)
    ]
    if not records:
        return
    store.guards.check_writes(thread_id, [channel for channel, _ in writes], [record for _, record in records])
    task = checkpoint_field(ns, checkpoint_id) + US + quote(str(task_id)) + US
    call = _scripts.put_writes(thread_keys(store.prefix, thread_id), task, records, idle_ms)
    replies = yield [call, *store.guards.waits]
    if store.guards.ack is not None:
        store.guards.ack.check(replies[1], Target(thread_id, ns, checkpoint_id))
