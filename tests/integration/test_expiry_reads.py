"""Reading moves a deadline where it was asked to, only ever to a later time, and never makes one."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import redis

from redis_ckpt import TTL
from tests.audit import PARTS, deadlines, dump
from tests.integration.test_expiry import HEAD, about, life, whole, with_ttl
from tests.savers import IDS, Facade, MakeSaver, cfg, in_one_colour, put
from tests.servers import on_fake

READS: dict[str, Callable[[Facade, Any], Any]] = {
    "get": lambda s, config: s.get(config),
    "get_tuple": lambda s, config: s.get_tuple(config),
    "list": lambda s, config: s.list(config),
    "list with a filter": lambda s, config: s.list(config, filter={"source": "loop"}),
    "get_delta_channel_history": lambda s, config: s.get_delta_channel_history(config=config, channels=["a"]),
}
PLACES = {
    "the latest": cfg(),
    "one by its id": HEAD,
    "one of a subgraph": cfg("t", "call:1"),
    "all namespaces": {"configurable": {"thread_id": "t"}},
}


@in_one_colour
def test_a_read_that_counts_as_use_moves_the_deadline_of_every_key(make_saver: MakeSaver, raw: redis.Redis) -> None:
    timed, reader = make_saver(ttl=1000), make_saver(ttl=TTL(2000, refresh_on_read=True))
    whole(timed)
    for how, read in READS.items():
        for place, config in PLACES.items():
            timed.put_writes(HEAD, [("x", 1)], "task")
            read(timed, config)
            assert life(raw) == about(1000), (how, place)  # it was not asked to count
            read(reader, config)
            assert life(raw) == about(2000), (how, place)
    assert set(deadlines(raw, b"ckpt:{t}")) == set(PARTS)


@in_one_colour
def test_a_read_never_takes_time_from_a_thread(make_saver: MakeSaver, raw: redis.Redis) -> None:
    whole(make_saver(ttl=1000))
    hasty, plain = make_saver(ttl=1, refresh_on_read=True), make_saver(refresh_on_read=True)
    for how, read in READS.items():
        for s, run in ((hasty, None), (hasty, 500), (plain, None), (plain, 500)):
            read(s, with_ttl(cfg(), run))
            assert life(raw) == about(1000), how


def test_reads_in_every_colour(make_saver: MakeSaver, raw: redis.Redis) -> None:
    whole(make_saver(ttl=1000))
    s = make_saver(ttl={"default_ttl": 50, "refresh_on_read": True})
    for n, read in enumerate(READS.values()):
        raw.hset("ckpt:{t}:checkpoints", "idle", 2_000_000 + n * 1_000_000)
        read(s, cfg())
        assert life(raw) == about(2000 + n * 1000)


@in_one_colour
def test_a_read_of_a_run_with_a_time_of_its_own_counts_from_that(make_saver: MakeSaver, raw: redis.Redis) -> None:
    whole(make_saver(ttl=1000))
    plain = make_saver(refresh_on_read=True)
    timed = make_saver(ttl=500, refresh_on_read=True)
    for n, read in enumerate(READS.values()):
        for s, seconds in ((plain, 2000 + n * 1000), (timed, 2500 + n * 1000)):
            read(s, with_ttl(cfg(), timedelta(seconds=seconds)))
            assert life(raw) == about(seconds)
    make_saver(ttl=9000).get_tuple(with_ttl(cfg(), 9000))  # its reads do not count
    assert life(raw) == about(2500 + 4 * 1000)


@in_one_colour
def test_a_read_gives_no_deadline_where_there_is_none(make_saver: MakeSaver, raw: redis.Redis) -> None:
    plain, reader = make_saver(), make_saver(ttl=1000, refresh_on_read=True)
    whole(plain)
    for read in READS.values():
        read(reader, cfg())
        assert life(raw) is None
    reader.expire("t", 1000)
    reader.persist("t")
    for read in READS.values():
        read(reader, cfg())
        assert life(raw) is None


@in_one_colour
def test_the_own_idle_time_of_a_thread_counts_for_reads_too(make_saver: MakeSaver, raw: redis.Redis) -> None:
    reader = make_saver(ttl=3000, refresh_on_read=True)
    whole(reader)
    reader.expire("t", 2000)
    reader.get_tuple(cfg())
    reader.get_tuple(with_ttl(cfg(), 4000))
    assert life(raw) == about(2000)
    put(reader, 5, a=5)
    assert life(raw) == about(2000)


def test_a_look_at_all_threads_is_no_use_of_any(make_saver: MakeSaver, raw: redis.Redis) -> None:
    whole(make_saver(ttl=1000))
    reader = make_saver(ttl=2000, refresh_on_read=True)
    assert len(reader.list(None)) == len(reader.list(None, filter={"source": "loop"})) == 2
    (info,) = reader.threads()
    thread = reader.stats("t")
    assert reader.stats().expiring == 1
    reader.sweep(keep_last=5, older_than=1, idle_for=10**8)
    reader.sweep(["t"], dry_run=True)
    assert life(raw) == about(1000)
    assert thread is not None
    assert info.deadline is not None
    assert thread.deadline is not None
    assert abs(thread.deadline - info.deadline) < timedelta(seconds=60)


@on_fake
@in_one_colour
def test_a_read_of_what_is_not_there_leaves_nothing_behind(make_saver: MakeSaver, raw: redis.Redis) -> None:
    whole(make_saver(ttl=1000))
    before = dump(raw)
    reader = make_saver(ttl=2000, refresh_on_read=True)
    for read in READS.values():
        for config in (cfg("unknown"), cfg("t", "unknown"), cfg("t", "", IDS[9])):
            read(reader, config)
    assert dump(raw) == before


@on_fake
@in_one_colour
def test_waiting_approvals_live_as_long_as_somebody_looks(make_saver: MakeSaver, raw: redis.Redis) -> None:
    """Writes that came before their checkpoint, subgraphs and values that never change included."""
    s = make_saver(ttl=1000, refresh_on_read=True)
    whole(s)
    s.put_writes(HEAD, [("__interrupt__", "go on?")], "asks")
    s.put_writes(cfg("t", "", IDS[7]), [("x", 1)], "early")
    for _ in range(3):
        soon = int(time.time() * 1000) + 100_000
        for part in PARTS:
            raw.pexpireat(f"ckpt:{{t}}:{part}", soon)
        assert life(raw) == about(100)
        s.get_tuple(cfg())
        assert life(raw) == about(1000)
