"""What must hold at the end of the soak, when nobody writes any more: every thread, every checkpoint, every key."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from redis_ckpt import RedisSaver, ThreadInfo
from redis_ckpt._codec import decode_header
from redis_ckpt._delta import decode
from redis_ckpt._keys import GS, US, ThreadKeys, thread_keys, unquote
from redis_ckpt.policies import with_bases
from tests.audit import audit
from tests.savers import Facade, LoopThread, cfg
from tests.servers import Server
from tests.soak.content import LATE, BrokenError, check, place, times_left
from tests.soak.graph import Talk, graph
from tests.soak.writers import OWN_LIFE, OWN_LIFE_MS, PINNED, Report

FOREVER = -1
PREFIX = b"ckpt"


class Verifier:
    """Collects what is wrong, and goes on."""

    def __init__(self, server: Server, reports: list[Report]) -> None:
        self._server, self._reports = server, reports
        self._raw: Any = server.raw()  # it answers bytes, which redis-py's types do not know
        self.failures: list[str] = []
        self.threads = 0
        self.checkpoints = 0

    def run(self) -> None:
        loop = LoopThread()
        self._saver = saver = Facade(RedisSaver(self._server.url), loop)
        try:
            for look in (
                self._all_whole,
                self._deadlines,
                self._what_was_acknowledged,
                self._talks,
                lambda: saver.prune(self._ids()),
                self._all_whole,
                self._what_was_acknowledged,
                self._nothing_left_over,
                lambda: saver.call("sweep", older_than=0),
                self._what_was_acknowledged,
                self._nothing_left_over,
                self._late_writes_expire,
                self._deadlines,
            ):
                self._try(look)
        finally:
            saver.close()
            loop.stop()
        self.failures += audit(self._server)

    def _try(self, look: Callable[[], object]) -> None:
        try:
            look()
        except BrokenError as error:
            self.failures.append(f"at the end: {error}")
        except Exception:
            self.failures.append(f"at the end: {traceback.format_exc()}")

    def _ids(self) -> list[str]:
        return [info.thread_id for info in self._saver.threads()]

    def _all_whole(self) -> None:
        """Every checkpoint that can be listed."""
        infos = self._saver.threads()
        self.threads = max(len(infos), self.threads)
        self.checkpoints = max(sum(info.checkpoints for info in infos), self.checkpoints)
        for info in infos:
            self._try(partial(self._thread_whole, info))

    def _thread_whole(self, info: ThreadInfo) -> None:
        items = self._saver.list({"configurable": {"thread_id": info.thread_id}})
        found = {(item.config["configurable"]["checkpoint_ns"], item.checkpoint["id"]): item for item in items}
        for item in items:
            self._try(partial(check, self._saver, item))
            self._try(partial(_check_parent, item, found))
        if not len(found) == len(items) == info.checkpoints:
            raise BrokenError(f"thread {info.thread_id!r}: {info.checkpoints} checkpoints, {len(items)} listed")

    def _what_was_acknowledged(self) -> None:
        """The newest checkpoints are those that were put last, with their writes."""
        newest: dict[str, str] = {}
        for report in self._reports:
            for thread_id, ns, checkpoint_id, tasks in report.heads:
                self._try(partial(_check_head, self._saver, thread_id, ns, checkpoint_id, tasks))
            for thread_id, checkpoint_id in report.newest.items():
                newest[thread_id] = max(checkpoint_id, newest.get(thread_id, ""))
        for thread_id, checkpoint_id in newest.items():
            self._try(partial(_check_head, self._saver, thread_id, "", checkpoint_id, None))

    def _talks(self) -> None:
        """Graphs that wait are still waiting, and go on when they are answered."""
        app = graph(self._saver.raw_saver)
        for report in self._reports:
            for thread_id, (log, waits) in report.talks.items():
                talk = Talk(app, thread_id, log, waits=waits)
                self._try(talk.verify)
                self._try(talk.move)
                report.talks[thread_id] = talk.log, talk.waits

    def _deadlines(self) -> None:
        """One deadline for the five keys, and the one that the thread has been given."""
        lives = {thread_id: life for report in self._reports for thread_id, life in report.lives.items()}
        for thread_id in self._ids():
            self._try(partial(self._deadline, thread_id, lives.get(thread_id)))

    def _deadline(self, thread_id: str, life: str | None) -> None:
        left = times_left(self._raw, thread_id)
        right = {
            None: True,  # a copy, or a thread of which nobody knows
            PINNED: max(left) == FOREVER,
            OWN_LIFE: OWN_LIFE_MS / 2 < max(left) <= OWN_LIFE_MS,
            "": max(left) > 0,
        }
        if not right[life]:
            raise BrokenError(f"thread {thread_id!r}, whose life is {life!r}: its keys live {left} ms")

    def _nothing_left_over(self) -> None:
        """No blob without a checkpoint, no checkpoint without its blobs, no late writes."""
        for thread_id in self._ids():
            for wrong in self._left_over(thread_keys(PREFIX, thread_id)):
                self.failures.append(f"thread {thread_id!r} after the last prune: {wrong}")

    def _left_over(self, keys: ThreadKeys) -> Iterator[str]:
        records: dict[bytes, bytes] = self._raw.hgetall(keys.checkpoints)
        headers = {field: decode_header(record) for field, record in records.items() if US in field}
        stored: dict[bytes, bytes] = self._raw.hgetall(keys.blobs)
        blobs = {name.removeprefix(GS) for name in stored}
        bases = {
            name[1:]: name[1:].rpartition(US)[0] + US + decode(record).base
            for name, record in stored.items()
            if name.startswith(GS)
        }
        named = {field.split(US)[0] + US + ref for field, header in headers.items() for ref in header.refs}
        needed = with_bases(named, bases)
        if blobs != needed:
            yield f"blobs nobody refers to: {sorted(blobs - needed)}, blobs that are gone: {sorted(needed - blobs)}"
        if b"orphans" in records:
            yield f"orphans are noted: {records[b'orphans']!r}"
        oldest = min(field.split(US)[1] for field in headers)
        for name in self._raw.hkeys(keys.writes):
            ns, checkpoint_id, _, _ = name.split(US)
            if ns + US + checkpoint_id not in headers and checkpoint_id < oldest:
                yield f"a late write: {name!r}, the oldest checkpoint is {oldest!r}"

    def _late_writes_expire(self) -> None:
        """What is left of a thread that is gone are late writes, which go by themselves."""
        known = set(self._ids())
        for key in self._raw.scan_iter(match=b"ckpt:{*}:*", count=1000):
            thread_id = unquote(key.split(b"{")[1].split(b"}")[0])
            if thread_id in known or key.startswith(b"ckpt:run:"):
                continue
            if not key.endswith((b":writes", b":pending")) or self._raw.pttl(key) <= 0:
                self.failures.append(f"{key!r} is left of a thread without checkpoints")


def _check_parent(item: CheckpointTuple, found: dict[tuple[str, str], CheckpointTuple]) -> None:
    """A parent is older; where it is still there it has the writes that its child counted."""
    if item.parent_config is None:
        return
    at = item.parent_config["configurable"]
    if not at["checkpoint_id"] < item.checkpoint["id"]:
        raise BrokenError(f"{place(item)} has the younger parent {at['checkpoint_id']!r}")
    parent = found.get((at["checkpoint_ns"], at["checkpoint_id"]))
    asked = item.metadata.get("asked")
    if parent is None or asked is None:
        return
    waiting = [write for write in parent.pending_writes or [] if write[0] != LATE]
    if len(waiting) != asked:
        raise BrokenError(f"{place(parent)} has {len(waiting)} writes; when its child was put it had {asked}")


def _check_head(saver: Facade, thread_id: str, ns: str, checkpoint_id: str, tasks: list[str] | None) -> None:
    found = saver.get_tuple(cfg(thread_id, ns))
    if found is None or found.checkpoint["id"] != checkpoint_id:
        there = found and found.checkpoint["id"]
        raise BrokenError(f"{place(cfg(thread_id, ns, checkpoint_id))} should be the newest, not {there!r}")
    check(saver, found)
    waiting = sorted({write[0] for write in found.pending_writes or []} - {LATE})
    if tasks is not None and waiting != tasks:
        raise BrokenError(f"{place(found)}: the tasks {waiting} have written, not {tasks}")
