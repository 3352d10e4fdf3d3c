"""Reads threads and compares them with what was acknowledged: nothing may be lost, nothing torn."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from langgraph.checkpoint.base import CheckpointTuple

from redis_ckpt import AsyncRedisSaver, RedisSaver
from tests.campaigns.graph import fault, turns
from tests.campaigns.journal import Acknowledged, Place
from tests.integration.long_runs import PATIENT
from tests.savers import Facade, LoopThread, cfg
from tests.soak.content import place

MOST_FAULTS = 20


class Checker:
    """Reads from a process of its own saver; `faults` says what is wrong."""

    def __init__(self, url: str, journal: Path) -> None:
        self.url = url
        self.acknowledged = Acknowledged(journal)
        self.counts: Counter[str] = Counter(lost=0, torn=0)
        self.faults: list[str] = []
        self.turns: dict[str, int] = {}
        """How many turns of each thread were over when it was last read."""
        self._done: dict[str, int] = {}
        self._verifies = False

    def check_all(self, colour: str = "sync") -> None:
        """Every thread that has changed since the last time."""
        told = self.acknowledged.read()
        ahead = {t: (set(told.checkpoints[t]), set(told.writes[t])) for t in (*told.checkpoints, *told.writes)}
        changed = {t: both for t, both in ahead.items() if self._done.get(t) != len(both[0]) + len(both[1])}
        loop = LoopThread()
        saver = Facade((AsyncRedisSaver if colour == "async" else RedisSaver)(self.url, retry=PATIENT), loop)
        try:
            for thread_id, (checkpoints, writes) in changed.items():
                self.check(saver, thread_id, checkpoints, writes)
                self._done[thread_id] = len(checkpoints) + len(writes)
        finally:
            saver.close()
            loop.stop()

    def check_everything(self, colour: str = "sync") -> None:
        """Every thread, at the end, each part of it."""
        self._done.clear()
        self._verifies = True
        self.check_all(colour)
        self.faults += self.acknowledged.faults

    def check(self, saver: Facade, thread_id: str, checkpoints: set[Place], writes: set[tuple[Place, str]]) -> None:
        """One thread."""
        found = saver.list({"configurable": {"thread_id": thread_id}})
        there = {self._place(each): each for each in found}
        self._lost("checkpoint", thread_id, checkpoints - there.keys())
        stored = {(at, task) for at, each in there.items() for task, _, _ in each.pending_writes or []}
        self._lost("writes", thread_id, {each for each in writes if each[0] in there} - stored)
        for each in found:
            if (wrong := fault(each)) is not None:
                self.counts["torn"] += 1
                self._wrong(f"{place(each)}: {wrong}")
        self.counts["checkpoints read"] += len(found)
        report = saver.call("verify", thread_id) if self._verifies else None
        for problem in () if report is None else report.problems:
            self.counts["torn"] += 1
            self._wrong(f"thread {thread_id!r}: {problem}")
        newest = saver.get_tuple(cfg(thread_id))
        self.turns[thread_id] = turns(newest)
        last = max((checkpoint_id for ns, checkpoint_id in checkpoints if not ns), default="")
        if last and (newest is None or newest.checkpoint["id"] < last):
            self._lost("newest checkpoint", thread_id, {("", last)})

    def _place(self, found: CheckpointTuple) -> Place:
        at = found.config["configurable"]
        return at["checkpoint_ns"], at["checkpoint_id"]

    def _lost(self, what: str, thread_id: str, lost: set[Place] | set[tuple[Place, str]]) -> None:
        if lost:
            self.counts["lost"] += len(lost)
            self._wrong(f"thread {thread_id!r}: acknowledged, and not there: {what} {sorted(lost)[:3]}")

    def _wrong(self, text: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(text)
