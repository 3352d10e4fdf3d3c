"""Whether a thread on the server, and what a saver tells of it, are what the model says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import redis
from langgraph.checkpoint.base import CheckpointTuple

from redis_ckpt._keys import GS, MARK, US, blob_ref, checkpoint_field, quote, thread_keys, unquote
from tests.property.model import Blob, Name, Thread
from tests.property.strategies import same
from tests.savers import Facade, cfg

PREFIX = b"ckpt"
MOST_APART_MS = 5
TOLERANCE_SECONDS = 2.0  # between the clocks of server and test
LOOKS = 5


class Stored(NamedTuple):
    """What stands in the five keys of a thread, and how long each has to live."""

    checkpoints: dict[bytes, bytes]
    blobs: dict[bytes, bytes]
    writes: dict[bytes, bytes]
    order: list[bytes]
    pending: list[bytes]
    left_ms: list[int]
    now: float  # by the server's clock

    @property
    def alive_ms(self) -> list[int]:
        """What is left to live of the keys that are there."""
        return [ms for ms in self.left_ms if ms != -2]

    def is_even(self) -> bool:
        """Whether all keys have the same deadline."""
        return max(self.alive_ms, default=0) - min(self.alive_ms, default=0) <= MOST_APART_MS

    def fits(self, thread: Thread) -> bool:
        checkpoints, blobs, writes = names(thread)
        seen = {checkpoint_field(*name) for name in thread.checkpoints}
        index = {MARK + US.join(name.split(US)[::-1]) for name in seen if not name.startswith(US)}
        return (
            {name for name in self.checkpoints if US in name} == checkpoints
            and {*self.order} == seen | index | {GS + name for name in checkpoints - seen}
            and sorted(name.removeprefix(GS) for name in self.blobs) == sorted(blobs)
            and {*self.writes} == {*self.pending} == writes
        )

    def check_life(self, thread: Thread) -> None:
        """All keys have the one deadline of the model, or none; the thread's own idle time is stored."""
        left = self.alive_ms
        assert bool(left) is not thread.is_nothing()
        if thread.deadline is None:
            assert set(left) <= {-1}, self.left_ms
        else:
            assert self.is_even(), self.left_ms
            at = self.now + min(left) / 1000
            early, late = thread.deadline
            assert early - TOLERANCE_SECONDS <= at <= late + TOLERANCE_SECONDS, (at - early, at - late)
        own = self.checkpoints.get(b"idle")
        assert own == (None if thread.own is None else b"%d" % round(thread.own * 1000))

    def bases(self) -> dict[Blob, Blob]:
        """Of the values that are deltas what they are built on."""
        return {
            (unquote(ns), unquote(channel), int(version)): (unquote(ns), unquote(channel), int(record.split(US)[2]))
            for name, record in self.blobs.items()
            if name.startswith(GS)
            for ns, channel, version in [name[1:].split(US)]
        }


def keys_of(thread_id: str) -> list[bytes]:
    return [*thread_keys(PREFIX, thread_id)]


def look(raw: redis.Redis, thread_ids: Collection[str]) -> dict[str, Stored]:
    """What stands in the keys of threads: one atomic view of all."""
    pipeline: Any = raw.pipeline(transaction=True)
    pipeline.time()
    for thread_id in thread_ids:
        keys = keys_of(thread_id)
        for key in keys[:3]:
            pipeline.hgetall(key)
        for key in keys[3:]:
            pipeline.zrange(key, 0, -1)
        for key in keys:
            pipeline.pttl(key)
    (seconds, micros), *replies = pipeline.execute()
    now = seconds + micros / 1e6
    found: dict[str, Stored] = {}
    for n, thread_id in enumerate(thread_ids):
        checkpoints, blobs, writes, order, pending, *left_ms = replies[10 * n : 10 * n + 10]
        found[thread_id] = Stored(checkpoints, blobs, writes, order, pending, left_ms, now)
    return found


def names(thread: Thread) -> tuple[set[bytes], set[bytes], set[bytes]]:
    """The names that a thread's checkpoints, values and writes have on the server."""
    return (
        {checkpoint_field(*name) for name in thread.records()},
        {quote(ns) + US + blob_ref(channel, version) for ns, channel, version in thread.blobs},
        {
            US.join((checkpoint_field(*name), quote(task), b"%d" % idx))
            for name, found in thread.writes.items()
            for task, idx in found
        },
    )


def size_of(dumped: Mapping[bytes, Mapping[bytes, Any]], keys: Collection[bytes] | None = None) -> int:
    """The bytes of all names and values, but not of what is said once of a whole thread."""
    return sum(
        len(name) + (len(value) if isinstance(value, bytes) else 0)
        for key, entries in dumped.items()
        if b":run:" not in key and (keys is None or key in keys)
        for name, value in entries.items()
        if US in name
    )


class Comparison:
    """Compares all threads with the model, again and again.

    What a saver tells of a thread is asked for when its keys or the model have changed since.
    """

    def __init__(self, saver: Facade, raw: redis.Redis, delta_channels: Collection[str]) -> None:
        self._saver, self._raw, self._channels = saver, raw, [*delta_channels]
        self._compared: dict[str, tuple[Stored, Thread]] = {}

    def check(self, threads: Mapping[str, Thread]) -> None:
        for _ in range(LOOKS):  # a server that is held up between two of its answers makes one deadline look like two
            found = look(self._raw, threads)
            if all(stored.is_even() for stored in found.values()):
                break
        for thread_id, stored in found.items():
            thread = threads[thread_id]
            assert stored.fits(thread), f"{stored} is not {thread}"
            stored.check_life(thread)
            before, then = self._compared.get(thread_id, (None, None))
            if before is None or stored[:5] != before[:5] or thread != then:
                self._check_answers(thread_id, thread)
                self._compared[thread_id] = stored, thread.copy()

    def _check_answers(self, thread_id: str, thread: Thread) -> None:
        """Everything that can be seen of a thread, through a saver whose reads do not count."""
        listed = self._saver.list({"configurable": {"thread_id": thread_id}})
        ordered = sorted(thread.checkpoints, key=lambda name: name[::-1], reverse=True)
        expected = [told(thread_id, thread, name) for name in ordered]
        assert same([t._asdict() for t in listed], expected), f"{listed} is not {expected}"
        for ns, checkpoint_id in thread.heads():
            newest = self._saver.get_tuple(cfg(thread_id, ns))
            assert newest is not None
            assert same(newest._asdict(), told(thread_id, thread, (ns, checkpoint_id)))
        for name in thread.checkpoints:
            config = cfg(thread_id, *name)
            history = dict(self._saver.get_delta_channel_history(config=config, channels=self._channels))
            expected_history = {channel: thread.history(name, channel) for channel in self._channels}
            assert same(history, expected_history), f"{name}: {history} is not {expected_history}"
        for name in thread.ancestors:
            assert self._saver.get_tuple(cfg(thread_id, *name)) is None


def told(thread_id: str, thread: Thread, name: Name) -> dict[str, Any]:
    """A checkpoint as a saver tells of it."""
    saved = thread.checkpoints[name]
    return CheckpointTuple(
        config=cfg(thread_id, *name),
        checkpoint={
            "v": 4,
            "ts": saved.ts,
            "id": name[1],
            "channel_values": thread.values(name),
            "channel_versions": saved.versions,  # type: ignore[typeddict-item]
            "versions_seen": {},
            "updated_channels": None,
        },
        metadata=saved.metadata,  # type: ignore[arg-type]
        parent_config=cfg(thread_id, name[0], saved.parent) if saved.parent else None,
        pending_writes=[(write.task, write.channel, write.value) for write in thread.pending(name)],
    )._asdict()
