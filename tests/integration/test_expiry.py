"""A thread lives and dies as a whole: one deadline for all its keys, whoever writes, and its own idle time and pin.

Every number is far from the others and from zero, so it does not matter how long a test takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
import redis

from redis_ckpt import TTL
from tests.audit import PARTS, audit, deadlines, dump
from tests.savers import IDS, Facade, MakeSaver, arguments, cfg, in_one_colour, put, values, wait_until, writes
from tests.servers import HOST, Server, free_port, on_fake, on_real_servers

HEAD = cfg("t", "", IDS[1])
SLACK = 60.0  # seconds that a test may take


def life(raw: redis.Redis, t: str = "t") -> float | None:
    """The seconds until the one deadline of all keys of a thread; None if it has none."""
    found = deadlines(raw, f"ckpt:{{{t}}}".encode())
    assert found, "the thread has no key"
    assert max(found.values()) - min(found.values()) <= 5, found
    ms = max(found.values())
    return None if ms == -1 else ms / 1000


def about(seconds: float) -> Any:
    return pytest.approx(seconds - SLACK / 2, abs=SLACK / 2)


def put_for(s: Facade, i: int, ttl: Any, **kwargs: Any) -> None:
    """A put by a run that brings an idle time of its own."""
    config, checkpoint, metadata, versions = arguments(i, **kwargs)
    s.put(with_ttl(config, ttl), checkpoint, metadata, versions)


def with_ttl(config: Any, ttl: Any) -> Any:
    return {"configurable": config["configurable"] | {"checkpoint_ttl": ttl}}


def unreachable(make_saver: MakeSaver, **kwargs: Any) -> Facade:
    """A saver of a server that is not there: what it refuses it refuses before it asks."""
    return make_saver(redis_url=f"redis://{HOST}:{free_port()}", connection_args={"retry": None}, **kwargs)


def whole(s: Facade, t: str = "t") -> None:
    """A thread with all five keys, and a second namespace."""
    put(s, 1, t=t, a=1, meta={"run_id": "r1"})
    put(s, 2, t=t, ns="call:1", b=2, meta={"run_id": "r1"})
    s.put_writes(cfg(t, "", IDS[1]), [("x", 1)], "task")


WRITES: dict[str, Callable[[Facade], Any]] = {
    "put": lambda s: put(s, 3, parent=1, a=3),
    "put of an id that is there": lambda s: put(s, 1, a="other", vers={"a": 9}),
    "put without a value": lambda s: put(s, 3, parent=1),
    "put of another namespace": lambda s: put(s, 3, ns="sub", a=3),
    "put_writes": lambda s: s.put_writes(HEAD, [("x", 2)], "other task"),
    "put_writes that were there": lambda s: s.put_writes(HEAD, [("x", 2)], "task"),
    "put_writes of another namespace": lambda s: s.put_writes(cfg("t", "call:1", IDS[2]), [("x", 2)], "task"),
    "put_writes before their checkpoint": lambda s: s.put_writes(cfg("t", "", IDS[5]), [("x", 2)], "task"),
}


@in_one_colour
def test_each_write_sets_one_deadline_for_every_key(make_saver: MakeSaver, raw: redis.Redis) -> None:
    whole(make_saver())
    assert life(raw) is None
    forms = {1000: 1000, 500: 500.0, 2000: timedelta(seconds=2000), 3000: {"default_ttl": 50}, 4000: TTL(4000)}
    savers = {seconds: make_saver(ttl=ttl) for seconds, ttl in forms.items()}
    for name, write in WRITES.items():
        for seconds, s in savers.items():
            write(s)
            assert life(raw) == about(seconds), name
            assert set(deadlines(raw, b"ckpt:{t}")) == set(PARTS)


def test_a_thread_of_one_run_expires_as_one(make_saver: MakeSaver, raw: redis.Redis) -> None:
    timed = make_saver(ttl=1000)
    for grow in (
        lambda: timed.put_writes(cfg("t", "", IDS[1]), [("x", 1)], "early"),
        lambda: put(timed, 1),
        lambda: put(timed, 2, parent=1, a=1),
        lambda: timed.put_writes(cfg("t", "", IDS[2]), [("x", 1)], "task"),
    ):
        grow()
        assert life(raw) == about(1000)
    assert set(deadlines(raw, b"ckpt:{t}")) == set(PARTS)


@in_one_colour
def test_without_a_ttl_a_new_thread_has_no_deadline_even_where_writes_had_one(
    make_saver: MakeSaver, raw: redis.Redis
) -> None:
    make_saver(ttl=1000).put_writes(HEAD, [("x", 1)], "early")
    plain = make_saver()
    plain.put_writes(HEAD, [("x", 2)], "also early")
    assert life(raw) == about(1000)
    put(plain, 1, a=1)
    assert life(raw) is None


@in_one_colour
def test_a_write_without_a_ttl_leaves_the_deadline_where_it_is(make_saver: MakeSaver, raw: redis.Redis) -> None:
    """Also on the keys that this write is the first to need."""
    timed, plain = make_saver(ttl=1000), make_saver()
    for name, write in WRITES.items():
        put(timed, 1)
        write(plain)
        assert life(raw) == about(1000), name
        plain.delete_thread("t")


@in_one_colour
def test_a_copy_gets_the_deadline_of_a_write(make_saver: MakeSaver, raw: redis.Redis) -> None:
    timed, plain = make_saver(ttl=1000), make_saver()
    whole(timed)
    plain.copy_thread("t", "plain")
    make_saver(ttl=2000).copy_thread("t", "longer")
    make_saver(ttl=500).copy_thread("t", "shorter")
    assert [life(raw, t) for t in ("plain", "longer", "shorter", "t")] == [None, about(2000), about(500), about(1000)]
    whole(plain, "u")
    timed.put_writes(cfg("from-plain", "", IDS[1]), [("x", 1)], "stray")
    timed.copy_thread("u", "from-plain")
    plain.copy_thread("plain", "again")
    assert [life(raw, t) for t in ("u", "from-plain", "again")] == [None, about(1000), None]


@in_one_colour
def test_a_copy_takes_idle_time_and_pin_of_its_source_along(make_saver: MakeSaver, raw: redis.Redis) -> None:
    timed, plain = make_saver(ttl=1000), make_saver()
    for name, own in (("own", 3000), ("pinned", 0)):
        whole(timed, name)
        assert plain.expire(name, own) if own else plain.persist(name)
        for s, target in ((timed, f"{name}-1"), (plain, f"{name}-2")):
            s.copy_thread(name, target)
            assert life(raw, target) == (about(3000) if own else None)
            put(timed, 5, t=target, a=5)
            put(plain, 6, t=target, a=6)
            assert life(raw, target) == (about(3000) if own else None)
    assert sorted(info.thread_id for info in plain.threads() if info.pinned) == ["pinned", "pinned-1", "pinned-2"]


@in_one_colour
def test_removing_leaves_the_deadline_where_it_is(make_saver: MakeSaver, raw: redis.Redis) -> None:
    whole(make_saver(ttl=1000))
    for s in (make_saver(), make_saver(ttl=500), make_saver(ttl=2000, refresh_on_read=True)):
        for n in (3, 4):
            put_for(s, n, 1000, a=n, meta={"run_id": f"r{n}"})
        s.delete_for_runs(["r4"])
        s.prune(["t"])
        s.sweep(["t"], keep_last=1, older_than=0)
        s.sweep(dry_run=True)
        assert life(raw) == about(1000)


@pytest.mark.parametrize(("ttl", "expected"), [(None, None), (1000, about(1000))], ids=str)
@in_one_colour
def test_writes_that_are_left_alone_are_no_longer_pinned(
    make_saver: MakeSaver, raw: redis.Redis, ttl: Any, expected: Any
) -> None:
    s = make_saver(ttl=ttl)
    whole(s)
    s.put_writes(cfg("t", "", IDS[5]), [("x", 5)], "early")
    s.persist("t")
    s.delete_for_runs(["r1"])
    assert set(deadlines(raw, b"ckpt:{t}")) == {"writes", "pending"}
    assert life(raw) == expected
    put(s, 5, a=5)
    assert life(raw) == expected
    (info,) = s.threads()
    assert (info.pinned, info.idle) == (False, None)
    assert writes(s.get_tuple(cfg())) == [("early", "x", 5)]


@in_one_colour
def test_writes_that_are_left_alone_keep_their_deadline(make_saver: MakeSaver, raw: redis.Redis) -> None:
    whole(make_saver(ttl=1000))
    make_saver(ttl=2000).put_writes(cfg("t", "", IDS[5]), [("x", 5)], "early")
    make_saver(ttl=500).delete_for_runs(["r1"])
    assert life(raw) == about(2000)


def test_a_pin_holds_against_every_writer(make_saver: MakeSaver, raw: redis.Redis) -> None:
    timed = make_saver(ttl=1000)
    whole(timed)
    assert make_saver().persist("t") is True
    assert life(raw) is None
    for s in (timed, make_saver(ttl=500, refresh_on_read=True)):
        for write in WRITES.values():
            write(s)
        put_for(s, 7, 5, a=7)
        s.get_tuple(cfg())
        assert life(raw) is None
    (info,) = timed.threads()
    assert (info.pinned, info.idle, info.deadline) == (True, None, None)
    assert timed.expire("t", None) is True
    assert life(raw) == about(1000)
    assert b"idle" not in dump(raw)[b"ckpt:{t}:checkpoints"]


def test_an_idle_time_of_its_own_holds_against_every_writer(make_saver: MakeSaver, raw: redis.Redis) -> None:
    timed, plain = make_saver(ttl=1000), make_saver()
    whole(timed)
    assert plain.expire("t", timedelta(seconds=3000)) is True
    assert life(raw) == about(3000)
    raw.hset("ckpt:{t}:checkpoints", "idle", 4_000_000)  # so that a write shows that it counts from now on
    for s in (plain, timed):
        for write in WRITES.values():
            write(s)
            assert life(raw) == about(4000)
        put_for(s, 7, 5, a=7)
        assert life(raw) == about(4000)
    (info,) = timed.threads()
    assert (info.pinned, info.idle) == (False, timedelta(seconds=4000))
    assert info.deadline is not None
    assert (info.deadline - datetime.now(timezone.utc)).total_seconds() == about(4000)
    assert plain.expire("t", None) is True
    assert life(raw) is None
    put(timed, 8, a=8)
    assert life(raw) == about(1000)


@in_one_colour
def test_pin_and_idle_time_take_each_others_place(make_saver: MakeSaver, raw: redis.Redis) -> None:
    s = make_saver(ttl=1000)
    whole(s)
    steps: list[tuple[Callable[[], bool], Any]] = [
        (lambda: s.expire("t", 2000), about(2000)),
        (lambda: s.persist("t"), None),
        (lambda: s.persist("t"), None),
        (lambda: s.expire("t", TTL(3000)), about(3000)),
        (lambda: s.expire("t", 500.5), about(500.5)),
        (lambda: s.expire("t", None), about(1000)),
        (lambda: s.expire("t", None), about(1000)),
    ]
    for step, expected in steps:
        assert step() is True
        assert life(raw) == expected


@pytest.mark.parametrize("own", [None, 0, 4000])
@pytest.mark.parametrize("run", [None, 3000])
@pytest.mark.parametrize("ttl", [None, 2000])
@on_fake
@in_one_colour
def test_the_thread_goes_before_the_run_and_the_run_before_the_saver(
    make_saver: MakeSaver, raw: redis.Redis, own: int | None, run: int | None, ttl: int | None
) -> None:
    whole(make_saver(ttl=1000))
    if own is not None:
        assert make_saver().expire("t", own) if own else make_saver().persist("t")
    expected = own if own is not None else run or ttl or 1000
    s = make_saver(ttl=ttl)
    for write in (partial(put_for, s, 3, run, a=3), partial(s.put_writes, with_ttl(HEAD, run), [("x", 1)], "task 2")):
        write()
        assert life(raw) == (about(expected) if expected else None)
    put(make_saver(ttl=700), 4, a=4)  # what a run brings is of that run alone
    assert life(raw) == (about(own if own is not None else 700) if own != 0 else None)


@in_one_colour
def test_a_run_may_bring_a_deadline_where_the_saver_has_none(make_saver: MakeSaver, raw: redis.Redis) -> None:
    s = make_saver()
    s.put_writes(with_ttl(HEAD, 0.0001), [("x", 1)], "task")
    put_for(s, 1, timedelta(hours=1), t="u", a=1)
    assert life(raw, "u") == about(3600)
    wait_until(lambda: raw.exists("ckpt:{t}:writes", "ckpt:{t}:pending") == 0)


@on_fake
@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), timedelta(0), True, "60", [60]], ids=repr)
def test_a_bad_time_of_a_run_is_refused_before_anything_is_sent(
    make_saver: MakeSaver, raw: redis.Redis, bad: Any
) -> None:
    config = with_ttl(HEAD, bad)
    for s in (make_saver(), unreachable(make_saver, ttl=1000, refresh_on_read=True)):
        for refused in (
            partial(put_for, s, 1, bad, a=1, meta={"run_id": "r"}),
            partial(s.put_writes, config, [("x", 1)], "task"),
            partial(s.get_tuple, config),
            partial(s.list, config),
            partial(s.get_delta_channel_history, config=config, channels=["a"]),
        ):
            with pytest.raises((ValueError, TypeError), match="checkpoint_ttl must be"):
                refused()
    assert raw.keys() == []


@on_fake
def test_what_is_no_idle_time_or_thread_is_refused_before_anything_is_sent(
    make_saver: MakeSaver, raw: redis.Redis
) -> None:
    whole(make_saver())
    before = dump(raw)
    for s in (make_saver(ttl=1000), unreachable(make_saver)):
        for low in (0, -1, float("nan"), timedelta(days=-1), 10**30):
            with pytest.raises(ValueError, match="ttl must be more than 0"):
                s.expire("t", low)
        for odd in (True, "60", {"default_ttl": 1}, [60]):
            with pytest.raises(TypeError, match="ttl must be a number of seconds"):
                s.call("expire", "t", odd)
        for name, *ttl in (("persist",), ("expire", 60)):
            for nobody in ("", None):
                with pytest.raises(ValueError, match="thread_id"):
                    s.call(name, nobody, *ttl)
            with pytest.raises(TypeError, match="thread_id"):
                s.call(name, 1.5, *ttl)
    assert dump(raw) == before
    assert life(raw) is None


def test_of_a_thread_without_checkpoints_nothing_is_written(make_saver: MakeSaver, raw: redis.Redis) -> None:
    s = make_saver(ttl=1000)
    s.put_writes(cfg("stray", "", IDS[1]), [("x", 1)], "early")
    before = dump(raw)
    for t in ("unknown", "stray"):
        assert [s.persist(t), s.expire(t, 60), s.expire(t, None)] == [False, False, False]
    assert dump(raw) == before
    assert life(raw, "stray") == about(1000)


def test_an_expired_thread_is_gone_as_a_whole_and_can_begin_anew(
    make_saver: MakeSaver, raw: redis.Redis, server: Server
) -> None:
    brief = make_saver(ttl=0.3)
    whole(make_saver(ttl=1000))
    brief.put_writes(HEAD, [("x", 2)], "last")  # one step, so that nothing of it can expire before the rest is there
    five = [f"ckpt:{{t}}:{part}" for part in PARTS]

    def is_gone() -> bool:
        there = raw.exists(*five)
        assert there in (0, 5) or not server.real  # fakeredis looks at its clock for each key
        return not there

    wait_until(is_gone)
    assert brief.get_tuple(cfg()) is None
    assert brief.list(None) == []
    assert brief.threads() == []
    assert brief.stats("t") is None
    assert brief.persist("t") is False
    assert raw.keys("ckpt:{*") == []
    s = make_saver(ttl=1000)
    s.put_writes(HEAD, [("y", 2)], "task")
    put(s, 1, b=2)
    found = s.get_tuple(cfg())
    assert (values(found), writes(found)) == ({"b": 2}, [("task", "y", 2)])
    assert life(raw) == about(1000)


@on_real_servers
@pytest.mark.parametrize("hours", [-5, 5])
def test_the_clock_of_the_worker_does_not_count(
    make_saver: MakeSaver, raw: redis.Redis, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + hours * 3600)
    s = make_saver(ttl=1000, refresh_on_read=True)
    whole(s)
    assert life(raw) == about(1000)
    s.expire("t", 2000)
    assert life(raw) == about(2000)
    s.get_tuple(cfg())
    s.copy_thread("t", "u")
    assert [life(raw, t) for t in ("t", "u")] == [about(2000), about(2000)]


@pytest.mark.unaudited("damage is made on purpose")
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (["PEXPIRE", "ckpt:{t}:blobs", "900000"], "deadlines of its keys differ"),
        (["PERSIST", "ckpt:{t}:pending"], "deadlines of its keys differ"),
        (["HSET", "ckpt:{t}:checkpoints", "idle", "-1"], "its own idle time"),
        (["HSET", "ckpt:{t}:checkpoints", "idle", ""], "its own idle time"),
    ],
)
@on_fake
@in_one_colour
def test_the_audit_of_the_tests_sees_deadlines(
    make_saver: MakeSaver, server: Server, raw: redis.Redis, damage: list[str], complaint: str
) -> None:
    whole(make_saver(ttl=1000))
    assert audit(server) == []
    raw.execute_command(*damage)
    assert [complaint in wrong for wrong in audit(server)] == [True]
