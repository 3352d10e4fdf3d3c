"""verify: a thread that is whole is ok; whatever is taken from it, or changed, is reported by its place."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis

from redis_ckpt import Problem, ThreadReport
from redis_ckpt._keys import thread_keys
from tests.integration.test_damage import seed
from tests.savers import IDS, Facade, MakeSaver, cfg, put

KEYS = thread_keys(b"ckpt", "t")


def look(saver: Facade) -> ThreadReport:
    report: ThreadReport | None = saver.call("verify", "t")
    assert report is not None
    return report


def contents(raw: redis.Redis) -> list[Any]:
    return [raw.hgetall(key) for key in KEYS[:3]] + [raw.zrange(key, 0, -1) for key in KEYS[3:]]


def test_a_whole_thread_is_ok(make_saver: MakeSaver, raw: redis.Redis) -> None:
    saver = make_saver(ttl=1000)
    seed(saver)
    before = contents(raw)
    report = look(saver)
    assert report == ThreadReport("t", 2, 5, 0, 9, 8, 0, ())
    assert report.ok
    assert contents(raw) == before
    assert saver.call("verify", "nobody") is None


def test_what_prunes_and_copies_leave_is_ok(saver: Facade) -> None:
    seed(saver)
    saver.copy_thread("t", "u")
    saver.prune(["t"])
    assert look(saver).ok
    assert saver.call("verify", "u").checkpoints == 5


@pytest.mark.unaudited("damaged on purpose")
def test_every_field_that_is_gone_is_reported(saver: Facade, raw: redis.Redis) -> None:
    seed(saver)
    for part in ("checkpoints", "blobs", "writes"):
        key = getattr(KEYS, part)
        fields: list[Any] = raw.hkeys(key)
        for field in fields:
            if field in (b"idle", b"orphans"):
                continue
            value: Any = raw.hget(key, field)
            raw.hdel(key, field)
            problems = look(saver).problems
            assert problems, field
            if part == "checkpoints" and b"\x1f" in field:
                ns, checkpoint_id = field.decode().replace("%3A", ":").split("\x1f")
                assert Problem(ns, checkpoint_id, "record", "its record is missing") in problems
            raw.hset(key, field, value)
    for part in ("order", "pending"):
        key = getattr(KEYS, part)
        members: list[Any] = raw.zrange(key, 0, -1)
        for member in members:
            raw.zrem(key, member)
            assert look(saver).problems, member
            raw.zadd(key, {member: 0})
    assert look(saver).ok


@pytest.mark.unaudited("damaged on purpose")
def test_keys_that_are_gone_of_another_type_or_of_another_deadline_are_reported(
    make_saver: MakeSaver, raw: redis.Redis
) -> None:
    saver = make_saver(ttl=1000)
    seed(saver)
    for name, key in zip(KEYS._fields, KEYS, strict=True):
        dump: Any = raw.dump(key)
        raw.delete(key)
        assert look(saver).problems, name
        raw.set(key, "of another type", px=1_000_000)
        assert [p for p in look(saver).problems if p.part == "key" and name in p.what]
        raw.restore(key, 10_000, dump, replace=True)
        assert look(saver).problems == (
            Problem("", "", "deadline", f"the keys do not expire together: {name} before the others"),
        )
        raw.restore(key, 1_000_000, dump, replace=True)
    assert look(saver).ok


@pytest.mark.unaudited("damaged on purpose")
def test_what_cannot_be_read_is_reported_with_its_channel(saver: Facade, raw: redis.Redis) -> None:
    seed(saver)
    fields: list[Any] = raw.hkeys(KEYS.blobs)
    (field,) = [f for f in fields if f.endswith(f"other\x1f={2:032}.1".encode())]
    raw.hset(KEYS.blobs, field, b"1fmsgpack\x1f\xc1")
    raw.hset(KEYS.blobs, b"\x1fnobody\x1f1", b"1fnull\x1f")
    report = look(saver)
    (problem,) = report.problems
    assert (problem.checkpoint_ns, problem.checkpoint_id, problem.part) == ("", IDS[2], "values")
    assert "'other'" in problem.what
    assert (report.checkpoints, report.unreferenced) == (4, 1)


def test_a_thread_that_is_written_to_meanwhile_has_no_problems(saver: Facade) -> None:
    put(saver, "begin", log=["x"])
    done = threading.Event()

    def write() -> None:
        for n in range(60):
            config = put(saver, f"c-{n:03}", parent="begin" if n == 0 else f"c-{n - 1:03}", log=["x"] * n)
            saver.put_writes(config, [("x", n)], "task")
            if n % 20 == 19:
                saver.prune(["t"])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        assert look(saver).problems == ()
    writer.join()
    assert look(saver).ok
    assert saver.get_tuple(cfg()) is not None
