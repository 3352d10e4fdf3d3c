"""What a sweep tells: the dry run and the real one, progress, failures; and threads that change under its hands."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import redis

from redis_ckpt import CheckpointerError, DamagedCheckpointError, RedisSaver, SweepReport
from redis_ckpt._ops import planning
from tests.audit import PARTS, deadlines, dump
from tests.integration.test_expiry import unreachable, whole
from tests.integration.test_sweep import KEYS, aged, call, chain, left, put_at
from tests.savers import IDS, Facade, LoopThread, MakeSaver, cfg, in_one_colour, on_valkey, put, writes
from tests.servers import Server

DAYS_20 = timedelta(days=20)


def world(s: Facade) -> None:
    """Threads of every kind that a sweep knows."""
    roots = chain(s, 40, 30, 20, 10, t="t")
    put(s, roots[1], t="t", parent=roots[0], vers={"own": "other", "same": 1}, own=30, same="same")
    for n, root in enumerate(roots):
        call(s, f"a:{n}", 39 - 10 * n, root, t="t")
        s.put_writes(cfg("t", "", root), [("x", n), ("__interrupt__", "?")], "task")
        s.put_writes(cfg("t", f"a:{n}", aged(39 - 10 * n)), [("x", n)], "task")
    s.put_writes(cfg("t", "", aged(50)), [("x", "late")], "late")
    s.put_writes(cfg("t", "", aged(5)), [("x", "early")], "early")
    chain(s, 60, 50, t="idle:1")
    chain(s, 55, t="idle:1", ns="sub {%}")
    s.put_writes(cfg("idle:1", "", aged(50)), [("x", 1)], "task")
    s.put_writes(cfg("idle:1", "", aged(45)), [("x", 1)], "early")
    chain(s, 60, 50, t="pinned")
    s.persist("pinned")
    put_at(s, "0", "2020-01-01", t="odd")
    put_at(s, "1", "", t="odd")
    for n, age in enumerate((60, 40, 20, 10, 5)):  # a delta channel, with a snapshot in the middle
        snapshot = {"log": "snapshot"} if n in (0, 2) else {}
        meta = {} if snapshot else {"counters_since_delta_snapshot": {"log": [1, 1]}}
        parent = aged((60, 40, 20, 10)[n - 1]) if n else None
        put(s, aged(age), t="delta", parent=parent, meta=meta, vers={"log": n, "a": n}, a=n, **snapshot)
        s.put_writes(cfg("delta", "", aged(age)), [("log", n)], "task")


def size(raw: redis.Redis) -> tuple[int, int, int, int]:
    """Checkpoints, writes and blobs, and the bytes of all names and values, from what is stored."""
    counts, total = dict.fromkeys(PARTS, 0), 0
    for key, entries in dump(raw).items():
        part = key.rpartition(b":")[2].decode()
        names = [name for name in entries if b"\x1f" in name]
        # the order has more members for namespaces and ancestors
        counts[part] = counts.get(part, 0) + sum(name[:1] not in (b"\x1d", b"\x1e") for name in names)
        total += sum(len(name) + (0 if part in ("order", "pending") else len(entries[name])) for name in names)
    return counts["order"], counts["writes"], counts["blobs"], total


LIMITS: list[dict[str, Any]] = [
    {},
    {"keep_last": 1},
    {"keep_last": 2},
    {"older_than": DAYS_20},
    {"older_than": 0},
    {"idle_for": DAYS_20},
    {"keep_last": 2, "older_than": timedelta(days=35), "idle_for": timedelta(days=45)},
    {"keep_last": 100, "older_than": timedelta(days=1000), "idle_for": timedelta(days=1000)},
]


def minus(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a - b for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@on_valkey
@in_one_colour
def test_the_report_is_what_went_and_what_the_dry_run_said(saver: Facade, raw: redis.Redis, limits: Any) -> None:
    world(saver)
    before, stored, held = size(raw), dump(raw), saver.stats().bytes
    dry = saver.sweep(**limits, dry_run=True)
    assert dump(raw) == stored
    report = saver.sweep(**limits)
    assert report == replace(dry, dry_run=False)
    gone = minus(before, size(raw))
    assert (report.checkpoints, report.writes, report.blobs, report.bytes_freed) == gone
    assert report.bytes_freed == held - saver.stats().bytes
    assert (report.threads, dry.dry_run) == (5, True)
    assert report.threads_removed == ("idle_for" in limits and limits["idle_for"] < timedelta(days=100))
    assert (report.missing, dict(report.failures)) == ((), {})
    again = saver.sweep(**limits)
    assert again == SweepReport(threads=5 - report.threads_removed)


def test_both_colours_tell_the_same(make_saver: MakeSaver, raw: redis.Redis) -> None:
    s = make_saver(ttl=1000)
    world(s)
    before, stored, ttls = size(raw), dump(raw), deadlines(raw, b"ckpt:{t}")
    dry = s.sweep(["idle:1", "t", "nobody"], keep_last=2, idle_for=DAYS_20, dry_run=True)
    assert dump(raw) == stored
    assert all(0 <= ttls[part] - ms < 60_000 for part, ms in deadlines(raw, b"ckpt:{t}").items())
    report = s.sweep(["idle:1", "t", "nobody"], keep_last=2, idle_for=DAYS_20)
    assert report == replace(dry, dry_run=False)
    gone = minus(before, size(raw))
    assert report == SweepReport(2, 1, gone[0], gone[1], gone[2], gone[3], ("nobody",))
    assert left(s, ns=None) == [20, 19, 10, 9]


@on_valkey
@in_one_colour
def test_stray_writes_that_go_are_counted_too(saver: Facade, raw: redis.Redis) -> None:
    saver.put_writes(cfg("stray", "", aged(30)), [("x", 1), ("y", 2)], "task")
    before = size(raw)
    dry = saver.sweep(["stray"], older_than=DAYS_20, dry_run=True)
    report = saver.sweep(["stray"], older_than=DAYS_20)
    assert (report.checkpoints, report.writes, report.blobs, report.bytes_freed) == before
    assert report.threads_removed == 1
    assert report == replace(dry, dry_run=False)


@on_valkey
@in_one_colour
def test_a_thread_that_takes_many_calls_is_counted_once(saver: Facade, raw: redis.Redis) -> None:
    for n in range(700):
        put(saver, f"{n:04}", vers={"a": n}, a=n)
    for n in range(3):
        saver.put_writes(cfg("t", "", f"{n:04}"), [("x", i) for i in range(500)], "task")
    saver.copy_thread("t", "u")
    before = size(raw)
    cases: list[tuple[dict[str, Any], int]] = [
        ({"keep_last": 1}, 699),
        ({"older_than": 0}, 699),
        ({"idle_for": 1}, 700),
    ]
    for limits, count in cases:
        dry = saver.sweep(["t"], **limits, dry_run=True)
        assert size(raw) == before
        report = saver.sweep(["t"], **limits)
        gone = minus(before, size(raw))
        assert (report.checkpoints, report.writes, report.blobs, report.bytes_freed) == gone
        assert (report.checkpoints, report.writes, report.blobs) == (count, 1500, count)
        assert report == replace(dry, dry_run=False)
        saver.delete_thread("t")
        saver.copy_thread("u", "t")


def test_ids_of_which_there_is_nothing_are_told(saver: Facade, raw: redis.Redis) -> None:
    chain(saver, 40, 30, t="here")
    report = saver.sweep(["nobody", "here", "a b", "here", "nobody"], keep_last=1)
    assert (report.threads, report.checkpoints, report.missing) == (1, 1, ("nobody", "a b"))
    assert {key for key in raw.scan_iter() if b"{here}" not in key} == set()
    assert saver.sweep(keep_last=1).missing == ()


@on_valkey
def test_of_no_threads_nothing_is_asked(make_saver: MakeSaver) -> None:
    assert make_saver().sweep() == SweepReport()
    assert unreachable(make_saver).sweep([], keep_last=1) == SweepReport()
    assert unreachable(make_saver).sweep((), dry_run=True) == SweepReport(dry_run=True)


@pytest.mark.unaudited("damage is made on purpose")
def test_a_damaged_thread_does_not_stop_the_sweep(saver: Facade, raw: redis.Redis) -> None:
    for t in ("a", "b", "c", "d"):
        chain(saver, 40, 30, t=t)
    raw.hdel("ckpt:{b}:checkpoints", b"\x1f" + aged(40).encode())
    raw.delete("ckpt:{c}:order")
    damaged = {key: entries for key, entries in dump(raw).items() if b"{b}" in key or b"{c}" in key}
    for dry_run in (True, False):
        report = saver.sweep(["a", "b", "c", "d"], keep_last=1, dry_run=dry_run)
        assert list(report.failures) == ["b", "c"]
        assert all(isinstance(error, DamagedCheckpointError) for error in report.failures.values())
        assert (report.threads, report.checkpoints) == (2, 2)
    assert saver.sweep(idle_for=DAYS_20).threads_removed == 2
    assert dump(raw) == damaged


def test_progress_is_told_after_each_thread(saver: Facade) -> None:
    for t, ages in (("a", (40, 30)), ("b", (40, 30, 20)), ("c", (10,))):
        chain(saver, *ages, t=t)
    told: list[SweepReport] = []
    report = saver.sweep(["a", "b", "nobody", "c"], keep_last=1, on_progress=told.append)
    assert [(r.threads, r.checkpoints, r.missing) for r in told] == [
        (1, 1, ()),
        (2, 3, ()),
        (2, 3, ("nobody",)),
        (3, 3, ("nobody",)),
    ]
    assert told[-1] == report
    told.clear()
    saver.sweep(on_progress=told.append, dry_run=True)
    assert [(r.threads, r.dry_run) for r in told] == [(1, True), (2, True), (3, True)]


@on_valkey
def test_a_coroutine_function_is_awaited_for_progress(make_saver: MakeSaver, loop_thread: LoopThread) -> None:
    s = make_saver()
    for t in ("a", "b"):
        chain(s, 40, 30, t=t)
    told: list[int] = []

    async def tell(report: SweepReport) -> None:
        told.append(report.threads)

    report = loop_thread.run(s.raw_saver.asweep(["a", "b"], keep_last=1, on_progress=tell))
    assert (told, report.checkpoints) == ([1, 2], 2)


@on_valkey
def test_an_error_of_the_callers_own_ends_the_sweep(saver: Facade) -> None:
    for t in ("a", "b"):
        chain(saver, 40, 30, t=t)

    def enough(report: SweepReport) -> None:
        raise InterruptedError("enough")

    with pytest.raises(InterruptedError):
        saver.sweep(["a", "b"], keep_last=1, on_progress=enough)
    assert [len(saver.list(cfg(t))) for t in ("a", "b")] == [1, 2]


NAN = float("nan")
BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"thread_ids": "t"}, TypeError, "not one text"),
    ({"thread_ids": b"t"}, TypeError, "not one text"),
    ({"thread_ids": ["t", ""]}, ValueError, "thread_id"),
    ({"thread_ids": ["t", None]}, ValueError, "thread_id"),
    ({"thread_ids": ["t", 1.5]}, TypeError, "thread_id"),
    *(({"keep_last": bad}, ValueError, "keep_last") for bad in (0, -1)),
    *(({"keep_last": bad}, TypeError, "keep_last") for bad in (True, 1.0, "1")),
    *(({"older_than": bad}, ValueError, "older_than") for bad in (-1, NAN, timedelta(-1), 10**12)),
    *(({"older_than": bad}, TypeError, "older_than") for bad in (True, "60")),
    *(({"idle_for": bad}, ValueError, "idle_for") for bad in (0, -1, NAN, timedelta(0), float("inf"))),
    *(({"idle_for": bad}, TypeError, "idle_for") for bad in (False, "60")),
    *(({"dry_run": bad}, TypeError, "dry_run") for bad in (None, 1, "no")),
]


@on_valkey
def test_bad_arguments_are_refused_before_anything_is_read(make_saver: MakeSaver) -> None:
    s = unreachable(make_saver)
    for bad, error, said in BAD:
        with pytest.raises(error, match=said):
            s.sweep(**bad)


# Threads that change between two trips of a sweep.


def meddled(server: Server, change: Callable[[], Any], when: int | None = None) -> RedisSaver:
    """A saver under whose hands something changes before its trip of that number (None: before each)."""
    s, count = RedisSaver(redis_client=server.raw()), itertools.count()
    s.setup()
    send = s._wire.send

    def sending(trip: Any) -> list[Any]:
        if next(count) == when or when is None:
            change()
        return send(trip)

    s._wire.send = sending  # type: ignore[method-assign]
    return s


READ, COUNTED = 1, 2  # the trips after which a thread that goes as a whole was read, and counted
CHANGES: dict[str, Callable[[Facade], Any]] = {
    "a newer checkpoint": lambda s: put(s, aged(1), parent=aged(30), vers={"own": 1, "same": 1}, own=1, same="same"),
    "a checkpoint of another namespace": lambda s: chain(s, 1, ns="sub"),
    "an answer": lambda s: s.put_writes(cfg("t", "", aged(30)), [("__resume__", "yes")], "task"),
    "a pin": lambda s: s.persist("t"),
    "an idle time of its own": lambda s: s.expire("t", 10**6),
    "deleted and made anew": lambda s: (s.call("delete_thread", "t"), chain(s, 40, 30, 1)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("when", [READ, COUNTED], ids=["read", "counted"])
@on_valkey
@in_one_colour
def test_an_idle_thread_that_comes_to_life_stays(
    saver: Facade, server: Server, when: int, change: Callable[[Facade], Any]
) -> None:
    chain(saver, 40, 30)
    s = meddled(server, partial(change, saver), when)
    report = s.sweep(["t"], idle_for=DAYS_20)
    assert (report.threads_removed, report.checkpoints, report.bytes_freed) == (0, 0, 0)
    assert left(saver)[:2] == [40, 30]
    assert report.failures == {}


@on_valkey
@in_one_colour
def test_a_thread_that_is_deleted_or_expires_meanwhile_is_not_counted(saver: Facade, server: Server) -> None:
    cases: list[tuple[int, dict[str, Any], int]] = [
        (READ, {"idle_for": 1}, 0),
        (COUNTED, {"idle_for": 1}, 0),
        (READ, {"keep_last": 1}, 0),
        (COUNTED, {"keep_last": 1}, 1),
    ]
    for when, limits, done in cases:
        chain(saver, 40, 30)
        report = meddled(server, partial(saver.delete_thread, "t"), when).sweep(["t"], **limits)
        assert (report.threads_removed, report.checkpoints) == (0, done)
        saver.delete_thread("t")


@pytest.mark.parametrize("dry_run", [False, True])
@on_valkey
@in_one_colour
def test_a_checkpoint_that_comes_after_the_plan_is_in_the_next_plan(
    saver: Facade, server: Server, dry_run: bool
) -> None:
    chain(saver, 40, 30, 20)
    s = meddled(server, partial(chain, saver, 1), READ)
    report = s.sweep(["t"], keep_last=2, dry_run=dry_run)
    assert report.checkpoints == 2
    assert left(saver) == ([40, 30, 20, 1] if dry_run else [20, 1])


@pytest.mark.parametrize("dry_run", [False, True])
@on_valkey
@in_one_colour
def test_what_was_counted_before_a_change_is_not_counted_twice(
    saver: Facade, server: Server, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    monkeypatch.setattr(planning, "NAMES_A_CALL", 1)
    chain(saver, 40, 30, 20)
    report = meddled(server, partial(chain, saver, 10), COUNTED).sweep(["t"], keep_last=1, dry_run=dry_run)
    assert report.checkpoints == 3
    assert left(saver) == ([40, 30, 20, 10] if dry_run else [10])


@on_valkey
@in_one_colour
def test_writes_whose_checkpoint_comes_after_the_plan_stay(saver: Facade, server: Server) -> None:
    saver.put_writes(cfg("t", "", IDS[1]), [("x", 1)], "early")
    s = meddled(server, partial(put, saver, 1, a=1), READ)
    report = s.sweep(["t"], older_than=1)
    assert (report.writes, report.checkpoints) == (0, 0)
    assert writes(saver.get_tuple(cfg())) == [("early", "x", 1)]


@on_valkey
@in_one_colour
def test_a_thread_that_never_rests_is_a_failure_of_its_own(
    saver: Facade, server: Server, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MOST_TRIES", 3)
    for t in ("t", "u"):
        chain(saver, 40, 30, t=t)
    change = partial(raw.hincrby, KEYS.checkpoints, "epoch", 1)
    report = meddled(server, change).sweep(["t", "u"], keep_last=1)
    assert list(report.failures) == ["t"]
    assert isinstance(report.failures["t"], CheckpointerError)
    assert "changed 3 times" in str(report.failures["t"])
    assert (left(saver, "t"), left(saver, "u")) == ([40, 30], [30])


@on_valkey
@in_one_colour
def test_a_sweep_of_a_whole_thread_sees_all_that_it_holds(make_saver: MakeSaver, raw: redis.Redis) -> None:
    s = make_saver()
    whole(s)
    before = size(raw)
    report = s.sweep(idle_for=1)
    assert (report.checkpoints, report.writes, report.blobs, report.bytes_freed) == before
    assert [key for key in raw.scan_iter() if b":run:" not in key] == []
