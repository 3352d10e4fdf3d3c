"""Random lives of a few threads: every call goes to a saver and to the model, and then both are compared."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

import pytest
import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from langchain_core.runnables import RunnableConfig

from redis_ckpt import CheckpointerError
from tests.audit import dump
from tests.property.compare import Comparison, keys_of, look, size_of
from tests.property.model import PINNED, ROOT, Counts, Limits, Name, Span, Thread, swept
from tests.property.supersteps import DELTA, Place, Put, Step, Workers, namespaces, places, steps, writes
from tests.savers import Facade, cfg

T = TypeVar("T")

THREADS = ("t", "u", "a:b")
SAVERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ttl": {"ttl": 50_000},
    "reader": {"ttl": timedelta(seconds=30_000), "refresh_on_read": True},
    "last 1": {"keep_last": 1},
    "last 2": {"keep_last": 2, "ttl": 70_000.5},
}
"""The savers that share a server, and what each is made with."""

READS = ("get_tuple", "list", "history", "threads and stats")
SLACK = 4  # what keep_last may leave beside what is wanted, up to 16 that are wanted
PASSES = (3_000, 9_000)  # seconds at a time; the idle times are so long that nothing expires

threads = st.sampled_from((*THREADS, THREADS[0], THREADS[0]))
supersteps = st.tuples(namespaces, steps)
savers = st.sampled_from(("plain", "ttl", "reader"))
readers = st.sampled_from(("reader", "reader", "ttl", "plain"))
few = st.sampled_from(("last 1", "last 2"))
run_ttls = st.sampled_from((None, None, None, None, 20_000, timedelta(seconds=90_000)))
own_times = st.sampled_from((PINNED, 20_000, 90_000, None, None))
first_own = st.sampled_from((PINNED, 20_000, None, None, None))
ages = st.sampled_from((None, None, None, 0, 12, 24, 96, 180))  # in hours
idle_ages = st.sampled_from((None, None, 6, 12, 24, 48))
tasks = st.sampled_from(("task-1", "x:y"))
paths = st.sampled_from(("", "~__pregel_pull, a", "~__pregel_push, 1"))

_numbers = itertools.count()


class Machine(RuleBasedStateMachine):
    """The threads of one example; their names are its own, so that savers may serve many examples."""

    def __init__(self, made: Mapping[str, Facade], raw: redis.Redis, grows: bool = False) -> None:
        super().__init__()
        raw.flushall()
        self.savers, self.raw, self.grows = made, raw, grows
        self.number = next(_numbers)
        self.threads = {self._own(t): Thread() for t in THREADS}
        self.workers = Workers(self.threads, self.number, grows)
        self.most_needed: dict[tuple[str, str], int] = {}
        self.comparison = Comparison(made["plain"], raw, DELTA)

    def _own(self, name: str) -> str:
        return f"{name}-{self.number}"

    # Writing.

    @initialize(some=st.lists(supersteps, min_size=3, max_size=8), own=first_own, by=savers)
    def begin(self, some: list[tuple[str, Step]], own: float | None, by: str) -> None:
        for ns, step in some:
            self._step(self._own(THREADS[0]), ns, step, by)
        self._set_own(self._own(THREADS[0]), own, by)

    @rule(t=threads, some=st.lists(supersteps, min_size=1, max_size=4), by=savers, ttl=run_ttls)
    def run(self, t: str, some: list[tuple[str, Step]], by: str, ttl: Any) -> None:
        for ns, step in some:
            self._step(self._own(t), ns, step, by, ttl)

    @rule(t=threads, ns=namespaces, some=st.lists(steps, min_size=2, max_size=6), by=few)
    def run_and_keep_few(self, t: str, ns: str, some: list[Step], by: str) -> None:
        for step in some:
            self._step(self._own(t), ns, step, by)

    @rule(t=threads, ns=namespaces, place=places, some=st.lists(steps, min_size=2, max_size=3), by=savers)
    def fork(self, t: str, ns: str, place: Place, some: list[Step], by: str) -> None:
        self._step(self._own(t), ns, replace(some[0], place=place, parent="older"), by)
        for step in some[1:]:
            self._step(self._own(t), ns, replace(step, place=("next", 0), parent="latest"), by)

    @rule(t=threads, task=st.integers(1, 3), root=steps, inner=st.lists(steps, min_size=1, max_size=2), by=savers)
    def call_a_subgraph(self, t: str, task: int, root: Step, inner: list[Step], by: str) -> None:
        self._step(self._own(t), ROOT, root, by)
        for step in inner:
            self._step(self._own(t), f"agent:{task}", step, by)

    @rule(
        t=st.sampled_from(THREADS),
        ns=namespaces,
        some=st.lists(st.tuples(places, writes, tasks, paths, savers), min_size=1, max_size=3),
        ttl=run_ttls,
    )
    def put_writes(self, t: str, ns: str, some: list[tuple[Place, Any, str, str, str]], ttl: Any) -> None:
        """To checkpoints that are there, that will come, or that were removed."""
        thread_id = self._own(t)
        for place, new, task, path, by in some:
            self._put_writes(thread_id, (ns, self.workers.id(thread_id, ns, place)), new, task, path, by, ttl)

    @rule(t=threads, ns=namespaces, step=steps, new=writes, by=savers, then_by=savers)
    def put_writes_before_their_checkpoint(self, t: str, ns: str, step: Step, new: Any, by: str, then_by: str) -> None:
        put = self.workers.put(self._own(t), ns, step)
        self._put_writes(self._own(t), put.name, new, "task-1", "", by, None)
        self._put(self._own(t), put, then_by, None)

    @rule(t=threads, n=st.integers(0, 9), new=writes, task=tasks, by=savers)
    def put_late_writes(self, t: str, n: int, new: Any, task: str, by: str) -> None:
        thread_id = self._own(t)
        if gone := self.workers.gone(thread_id):
            self._put_writes(thread_id, gone[n % len(gone)], new, task, "", by, None)

    @rule(source=threads, onto=threads, anew=st.booleans(), by=savers)
    def copy(self, source: str, onto: str, anew: bool, by: str) -> None:
        saver, copied, ids = self.savers[by], self.threads[self._own(source)], (self._own(source), self._own(onto))
        if anew and source != onto:
            saver.delete_thread(ids[1])
            self._leave(ids[1], Thread())
        if source == onto or (copied.checkpoints and self.threads[ids[1]].checkpoints):
            with pytest.raises(ValueError, match="cannot copy"):
                saver.copy_thread(*ids)
            return
        _, now = _timed(lambda: saver.copy_thread(*ids))
        if copied.checkpoints:
            self.threads[ids[1]] = new = copied.copy()
            new.set_own(now, new.own, _idle(by))

    # Living.

    @rule(t=threads, own=own_times, by=savers)
    def persist_or_expire(self, t: str, own: float | None, by: str) -> None:
        self._set_own(self._own(t), own, by)

    @rule(seconds=st.sampled_from(PASSES))
    def time_passes(self, seconds: int) -> None:
        for thread_id in self.threads:
            self._pass(thread_id, seconds)

    @rule(
        t=threads,
        some=st.lists(st.tuples(st.sampled_from(READS), readers, run_ttls), min_size=1, max_size=3),
        n=st.integers(0, 5),
        after=st.sampled_from((0, *PASSES)),
    )
    def read(self, t: str, some: list[tuple[str, str, Any]], n: int, after: int) -> None:
        self._pass(self._own(t), after)
        for how, by, ttl in some:
            self._read(self._own(t), n, how, by, ttl)

    # Removing.

    @rule(some=st.lists(threads, min_size=1, unique=True), by=savers)
    def prune(self, some: list[str], by: str) -> None:
        ids = [self._own(t) for t in some]
        self.savers[by].prune([*ids, self._own("missing")])
        for thread_id in ids:
            self._leave(thread_id, swept(self.threads[thread_id], Limits(1)))

    @rule(
        some=st.none() | st.lists(threads, min_size=1, unique=True),
        most=st.sampled_from((None, 1, 2, 3)),
        older_than=ages,
        idle_for=idle_ages,
        dry_run=st.booleans(),
        by=savers,
    )
    def sweep(
        self, some: Any, most: int | None, older_than: int | None, idle_for: int | None, dry_run: bool, by: str
    ) -> None:
        ids = None if some is None else [self._own(t) for t in (*some, "missing")]
        saver, before, progress = self.savers[by], dump(self.raw), list[Any]()
        options: dict[str, Any] = {
            "keep_last": most,
            "older_than": _seconds(older_than),
            "idle_for": _seconds(idle_for),
        }
        dry = saver.call("sweep", ids, **options, dry_run=True) if dry_run else None
        assert not dry_run or dump(self.raw) == before
        report = saver.call("sweep", ids, **options, on_progress=progress.append)
        assert dry is None or {**vars(dry), "dry_run": False} == vars(report)
        looked_at = {i: t for i, t in self.threads.items() if (ids is None or i in ids) and not t.is_nothing()}
        limits = Limits(most, _moment(older_than), _moment(idle_for))
        left = {thread_id: swept(thread, limits) for thread_id, thread in looked_at.items()}
        gone = _sum(looked_at.values()).minus(_sum(left.values()))
        assert gone == (report.checkpoints, report.writes, report.blobs)
        assert report.bytes_freed == size_of(before) - size_of(dump(self.raw))
        removed = [thread for thread in left.values() if thread.is_nothing()]
        assert (report.threads, report.threads_removed) == (len(looked_at), len(removed))
        assert report.missing == tuple(i for i in ids or () if i not in looked_at)
        assert (dict(report.failures), report.dry_run) == ({}, False)
        assert progress[-1:] in ([], [report])
        assert sorted({r.threads for r in progress} - {0}) == [*range(1, len(looked_at) + 1)]
        for thread_id, thread in left.items():
            self._leave(thread_id, thread)

    @rule(runs=st.lists(st.integers(0, 2), min_size=1, unique=True), by=savers)
    def delete_for_runs(self, runs: list[int], by: str) -> None:
        names = [self.workers.run_id(n) for n in runs]
        _, now = _timed(lambda: self.savers[by].delete_for_runs(names))
        for thread_id, thread in self.threads.items():
            left = thread.copy()
            left.forget_runs(names, now, _idle(by))
            if left.checkpoints.keys() == thread.checkpoints.keys():
                self._leave_one_of(thread_id, [thread, left])  # it may have been looked at, and then is tidy
            else:
                self._leave(thread_id, left)

    @rule(t=threads, by=savers, how=st.sampled_from(("delete_thread", "prune")))
    def delete(self, t: str, by: str, how: str) -> None:
        thread_id = self._own(t)
        if how == "prune":
            self.savers[by].prune([thread_id], strategy="delete")
        else:
            self.savers[by].delete_thread(thread_id)
        self._leave(thread_id, Thread())

    @invariant()
    def saver_and_model_agree(self) -> None:
        self.comparison.check(self.threads)

    # How it is done.

    def _read(self, thread_id: str, n: int, how: str, by: str, ttl: Any) -> None:
        thread = self.threads[thread_id]
        heads = thread.heads() or [(ROOT, "")]
        config = _config(thread_id, heads[n % len(heads)][0], None, ttl)
        saver = self.savers[by]
        calls: dict[str, Callable[[], Any]] = {
            "get_tuple": lambda: saver.get_tuple(config),
            "list": lambda: saver.list(config),
            "history": lambda: saver.get_delta_channel_history(config=config, channels=[*DELTA]),
            "threads and stats": lambda: self._look_from_above(by),
        }
        _, now = _timed(calls[how])
        counts = how != "threads and stats" and SAVERS[by].get("refresh_on_read", False)
        if counts and thread.checkpoints:  # else nothing was found
            thread.seen(now, _idle(by, ttl))

    def _look_from_above(self, by: str) -> None:
        there = {thread_id: thread for thread_id, thread in self.threads.items() if thread.checkpoints}
        found = {info.thread_id: info for info in self.savers[by].threads()}
        assert found.keys() == there.keys()
        for thread_id, thread in there.items():
            info, stats = found[thread_id], self.savers[by].call("stats", thread_id)
            assert info.checkpoints == len(thread.checkpoints)
            assert sorted(info.namespaces) == sorted(stats.namespaces.keys() & {ns for ns, _ in thread.checkpoints})
            for told in (info, stats):
                assert told.newest_id == thread.newest_id()
                assert (told.deadline is None) == (thread.deadline is None)
                assert told.pinned is (thread.own == PINNED)
                assert told.idle == (timedelta(seconds=thread.own) if thread.own else None)
            held = (stats.checkpoints.count, stats.writes.count, stats.blobs.count)
            assert (*held, stats.ancestors.count) == (*thread.counts(), len(thread.ancestors))
            assert stats.bytes == size_of(dump(self.raw), keys_of(thread_id))
        total = self.savers[by].call("stats")
        assert (total.checkpoints.count, total.writes.count, total.blobs.count) == _sum(there.values())
        assert total.threads == len(there)

    def _set_own(self, thread_id: str, own: float | None, by: str) -> None:
        call, args = ("persist", ()) if own == PINNED else ("expire", (own,))
        answer, now = _timed(lambda: self.savers[by].call(call, thread_id, *args))
        assert answer is self.threads[thread_id].set_own(now, own, _idle(by))

    def _pass(self, thread_id: str, seconds: int) -> None:
        """Let time pass, as far as the keys of a thread can tell."""
        deadline = self.threads[thread_id].deadline
        if seconds and deadline is not None and deadline.early - time.time() > seconds + PASSES[-1]:
            at = int((deadline.early - seconds) * 1000)
            for key in keys_of(thread_id):
                self.raw.pexpireat(key, at)
            self.threads[thread_id].deadline = Span(at / 1000, at / 1000)

    def _step(self, thread_id: str, ns: str, step: Step, by: str, ttl: Any = None) -> None:
        put = self.workers.put(thread_id, ns, step)
        if put.saved.parent is not None and put.writes:
            self._put_writes(thread_id, (ns, put.saved.parent), put.writes, "task-1", "", by, ttl)
        self._put(thread_id, put, by, ttl)

    def _put(self, thread_id: str, put: Put, by: str, ttl: Any) -> None:
        (ns, checkpoint_id), saved = put.name, put.saved
        config = _config(thread_id, ns, saved.parent, ttl)
        checkpoint: Any = {
            "v": 4,
            "id": checkpoint_id,
            "ts": saved.ts,
            "channel_values": put.values,
            "channel_versions": saved.versions,
            "versions_seen": {},
            "updated_channels": None,
        }
        metadata: Any = saved.metadata
        new: Any = put.new_versions
        thread = self.threads[thread_id]
        is_new = not thread.checkpoints
        if not thread.put(put.name, saved, put.values, put.new_versions):
            with pytest.raises(CheckpointerError, match="parent of checkpoint"):
                self.savers[by].put(config, checkpoint, metadata, new)
            return
        answer, now = _timed(lambda: self.savers[by].put(config, checkpoint, metadata, new))
        assert answer == cfg(thread_id, ns, checkpoint_id)
        if isinstance(ttl, int):  # LangGraph adds every plain value of a config
            saved.metadata["checkpoint_ttl"] = ttl
        thread.written(now, _idle(by, ttl), is_new=is_new)
        if self.grows:
            thread.bases |= look(self.raw, [thread_id])[thread_id].bases()
        if (most := SAVERS[by].get("keep_last")) is not None:
            self._keep_few(thread_id, ns, most)

    def _keep_few(self, thread_id: str, ns: str, most: int) -> None:
        """Either nothing was removed, or all that need not stay; and never is there much more than that."""
        thread = self.threads[thread_id]
        pruned = swept(thread, Limits(most))
        needed = max(most, self.most_needed.get((thread_id, ns), 0), len(pruned.namespaces().get(ns, ())))
        self.most_needed[thread_id, ns] = needed
        self._leave_one_of(thread_id, [thread, pruned])
        assert len(self.threads[thread_id].namespaces().get(ns, ())) <= needed + SLACK

    def _put_writes(
        self, thread_id: str, name: Name, new: list[tuple[str, Any]], task: str, path: str, by: str, ttl: Any
    ) -> None:
        config = _config(thread_id, *name, ttl)
        _, now = _timed(lambda: self.savers[by].put_writes(config, new, task, path))
        self.threads[thread_id].put_writes(name, new, task, path)
        self.threads[thread_id].written(now, _idle(by, ttl), is_new=False)

    def _leave(self, thread_id: str, left: Thread) -> None:
        self.threads[thread_id] = Thread() if left.is_nothing() else left

    def _leave_one_of(self, thread_id: str, some: Iterable[Thread]) -> None:
        stored = look(self.raw, [thread_id])[thread_id]
        fitting = [thread for thread in some if stored.fits(thread)]
        assert fitting, f"{stored} is neither of {[*some]}"
        self._leave(thread_id, fitting[0])


def _timed(call: Callable[[], T]) -> tuple[T, Span]:
    early = time.time()
    answer = call()
    return answer, Span(early, time.time())


def _config(thread_id: str, ns: str, checkpoint_id: str | None, ttl: Any) -> RunnableConfig:
    config = cfg(thread_id, ns, checkpoint_id)
    if ttl is not None:
        config["configurable"]["checkpoint_ttl"] = ttl
    return config


def _idle(by: str, run: Any = None) -> float | None:
    """The idle time of a run, else of its saver."""
    told = SAVERS[by].get("ttl") if run is None else run
    return told.total_seconds() if isinstance(told, timedelta) else told


def _seconds(hours: int | None) -> Any:
    """Hours as `sweep` takes them: seconds, or a timedelta."""
    return hours if not hours else timedelta(hours=hours) if hours % 48 else hours * 3600.0


def _moment(hours: int | None) -> datetime | None:
    return None if hours is None else datetime.now(timezone.utc) - timedelta(hours=hours)


def _sum(some: Iterable[Thread]) -> Counts:
    return Counts(*map(sum, zip(*(thread.counts() for thread in some), strict=True))) if some else Counts(0, 0, 0)
