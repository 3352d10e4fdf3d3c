"""stats, held against what is stored: counted key by key, without the code of the library."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import unquote

import pytest
import redis

from redis_ckpt import DamagedCheckpointError, Held, NamespaceStats, ThreadStats, TotalStats
from tests.audit import PARTS, dump
from tests.integration.test_expiry import about, unreachable
from tests.integration.test_sweep import NOW, aged, chain, put_at
from tests.savers import IDS, Facade, MakeSaver, cfg, in_one_colour, on_valkey, put

US, MARK, GS = b"\x1f", b"\x1e", b"\x1d"
KINDS = ("checkpoints", "ancestors", "blobs", "writes")


def counted(raw: redis.Redis, t: str = "t") -> dict[str, dict[str, Held]]:
    """Namespace -> kind -> how many and how large, from the raw keys of a thread."""
    stored = dump(raw)
    keys = {part: stored.get(f"ckpt:{{{t}}}:{part}".encode(), {}) for part in PARTS}
    count: Counter[tuple[str, str]] = Counter()
    size: Counter[tuple[str, str]] = Counter()
    for kind in ("checkpoints", "blobs", "writes"):
        for name, record in keys[kind].items():
            if US in name:
                is_ancestor = kind == "checkpoints" and GS + name in keys["order"]
                place = unquote(name.partition(US)[0].decode()), "ancestors" if is_ancestor else kind
                count[place] += 1
                size[place] += len(name) + len(record)
    for kind, part in (("checkpoints", "order"), ("writes", "pending")):
        for name in keys[part]:
            ns = name.rpartition(US)[2] if name.startswith(MARK) else name.lstrip(GS).partition(US)[0]
            size[unquote(ns.decode()), "ancestors" if name.startswith(GS) else kind] += len(name)
    found: dict[str, dict[str, Held]] = {}
    for place in count:
        found.setdefault(place[0], {})[place[1]] = Held(count[place], size[place])
    return found


def as_counted(stats: ThreadStats) -> dict[str, dict[str, Held]]:
    return {
        ns: {kind: held for kind in KINDS if (held := getattr(each, kind)).count}
        for ns, each in stats.namespaces.items()
    }


def world(s: Facade, t: str = "t") -> None:
    """Namespaces with odd names, values that are shared, orphans, writes of all kinds, and a value without bytes."""
    ids = chain(s, 40, 30, 20, t=t)
    put(s, ids[1], t=t, parent=ids[0], vers={"own": "other", "same": 1}, own="é" * 50, same="same")
    chain(s, 35, 15, t=t, ns="call:1|b {%}")
    put(s, aged(25), t=t, ns="empty")
    put(s, aged(24), t=t, ns="none", n=None)
    for name in ids:
        s.put_writes(cfg(t, "", name), [("x", 1), ("__interrupt__", "?"), ("y", b"\x00" * 100)], "a task:1")
    s.put_writes(cfg(t, "only writes", aged(5)), [("x", "early")], "task")


def stats_of(s: Facade, t: str = "t") -> ThreadStats:
    found = s.stats(t)
    assert found is not None
    return found


def test_a_thread_is_counted_by_kind_and_namespace(saver: Facade, raw: redis.Redis) -> None:
    world(saver)
    found, expected = stats_of(saver), counted(raw)
    assert as_counted(found) == expected
    assert list(found.namespaces) == ["", "call:1|b {%}", "empty", "none", "only writes"]
    for kind in KINDS:
        each = [held[kind] for held in expected.values() if kind in held]
        assert getattr(found, kind) == Held(sum(h.count for h in each), sum(h.bytes for h in each))
    assert found.bytes == sum(getattr(found, kind).bytes for kind in KINDS)
    assert (found.checkpoints.count, found.blobs.count, found.writes.count) == (7, 3 + 1 + 1 + 3 + 1, 10)
    assert raw.hlen("ckpt:{t}:writes") == 10


@in_one_colour
def test_what_is_kept_for_delta_channels_alone_is_counted_by_itself(saver: Facade, raw: redis.Redis) -> None:
    for n, ns in itertools.product(range(10), ("", "sub:1")):
        meta = {"counters_since_delta_snapshot": {"log": [1, 1]}} if n else {}
        snapshot = {} if n else {"log": "snapshot"}
        parent = f"{n - 1:03}" if n else None
        put(saver, f"{n:03}", ns=ns, parent=parent, meta=meta, vers={"log": n, "a": n}, a=n, **snapshot)
        saver.put_writes(cfg("t", ns, f"{n:03}"), [("log", n)], "task")
    before = stats_of(saver)
    assert before.ancestors == Held(0, 0)
    report = saver.sweep(keep_last=2)
    found = stats_of(saver)
    assert as_counted(found) == counted(raw)
    assert (found.checkpoints.count, found.ancestors.count, found.blobs.count, found.writes.count) == (4, 16, 6, 20)
    assert found.ancestors.bytes < before.checkpoints.bytes * 0.7
    assert (found.oldest_id, found.newest_id) == ("008", "009")
    assert found.bytes == before.bytes - report.bytes_freed
    assert saver.stats().ancestors == found.ancestors


def test_the_newest_and_oldest_are_told(saver: Facade) -> None:
    world(saver)
    found = stats_of(saver)
    assert (found.thread_id, found.oldest_id, found.newest_id) == ("t", aged(40), aged(15))
    day = timedelta(days=1)
    assert found.oldest_at is not None
    assert found.newest_at is not None
    assert abs(found.oldest_at - (NOW - 40 * day)) < timedelta(milliseconds=1)
    assert abs(found.newest_at - (NOW - 15 * day)) < timedelta(milliseconds=1)
    spans = {ns: (each.oldest_id, each.newest_id) for ns, each in found.namespaces.items()}
    assert spans == {
        "": (aged(40), aged(20)),
        "call:1|b {%}": (aged(35), aged(15)),
        "empty": (aged(25), aged(25)),
        "none": (aged(24), aged(24)),
        "only writes": ("", ""),
    }
    assert found.namespaces["empty"].blobs == NamespaceStats().blobs == Held(0, 0)


@on_valkey
@in_one_colour
def test_ages_come_from_ts_where_the_id_has_none(saver: Facade) -> None:
    put_at(saver, "0 %", "2020-01-01T00:00:00Z")
    put_at(saver, "1", "2021-01-01")
    put_at(saver, "2", "some day")
    found = stats_of(saver)
    assert (found.oldest_id, found.newest_id) == ("0 %", "2")
    assert (found.oldest_at, found.newest_at) == (datetime(2020, 1, 1, tzinfo=timezone.utc), None)
    total = saver.stats()
    assert (total.oldest_at, total.newest_at) == (found.oldest_at, None)


@in_one_colour
def test_deadline_pin_and_idle_time_are_told(make_saver: MakeSaver) -> None:
    s = make_saver(ttl=1000)
    for t in ("timed", "own", "pinned"):
        put(s, 1, t=t, a=1)
    put(make_saver(), 1, t="kept", a=1)
    s.expire("own", 2000.5)
    s.persist("pinned")
    own = timedelta(seconds=2000.5)
    for t, seconds, idle, pinned in (
        ("timed", 1000, None, False),
        ("own", 2000, own, False),
        ("pinned", None, None, True),
        ("kept", None, None, False),
    ):
        found = stats_of(s, t)
        assert (found.idle, found.pinned) == (idle, pinned)
        left = None if found.deadline is None else (found.deadline - datetime.now(timezone.utc)).total_seconds()
        assert left == (None if seconds is None else about(seconds + 1))
    total = s.stats()
    assert (total.threads, total.expiring, total.pinned) == (4, 2, 1)


def test_of_a_thread_without_checkpoints_there_is_nothing_to_tell(saver: Facade, raw: redis.Redis) -> None:
    saver.put_writes(cfg("stray", "", IDS[1]), [("x", 1)], "task")
    before = dump(raw)
    assert saver.stats("unknown") is None
    assert saver.stats("stray") is None
    assert saver.stats() == TotalStats()
    assert dump(raw) == before


def test_the_totals_are_the_sum_of_all_threads(saver: Facade) -> None:
    assert saver.stats() == TotalStats()
    for n, t in enumerate(("a", "b:1", "c {d}")):
        world(saver, t)
        chain(saver, 50 - n, 10 + n, t=t)
    each = [stats_of(saver, t) for t in ("a", "b:1", "c {d}")]
    total = saver.stats()
    for kind in KINDS:
        parts: list[Held] = [getattr(one, kind) for one in each]
        assert getattr(total, kind) == Held(sum(h.count for h in parts), sum(h.bytes for h in parts))
    assert (total.threads, total.expiring, total.pinned, total.damaged) == (3, 0, 0, ())
    assert total.bytes == sum(one.bytes for one in each)
    assert (total.oldest_at, total.newest_at) == (each[0].oldest_at, each[0].newest_at)


@on_valkey
@in_one_colour
def test_the_totals_are_of_one_prefix(make_saver: MakeSaver) -> None:
    for prefix in ("ckpt", "ckpt2", "ckpt:x"):
        chain(make_saver(prefix=prefix), 40, 30)
    assert {make_saver(prefix=prefix).stats().threads for prefix in ("ckpt", "ckpt2", "ckpt:x")} == {1}


@pytest.mark.unaudited("damage is made on purpose")
def test_damaged_threads_are_named_and_left_out_of_the_totals(saver: Facade, raw: redis.Redis) -> None:
    chain(saver, 40, 30, t="whole")
    for t in ("a", "b"):
        chain(saver, 40, 30, t=t)
    raw.hdel("ckpt:{a}:checkpoints", US + aged(40).encode())
    raw.delete("ckpt:{b}:order")
    with pytest.raises(DamagedCheckpointError):
        saver.stats("a")
    with pytest.raises(DamagedCheckpointError):
        saver.stats("b")
    whole, total = stats_of(saver, "whole"), saver.stats()
    assert (total.threads, total.bytes, total.checkpoints) == (1, whole.bytes, whole.checkpoints)
    assert total.damaged == ("a",)  # without its order `b` is no longer found, by `threads` neither


@on_valkey
@in_one_colour
def test_a_long_thread_is_counted_page_by_page(saver: Facade, raw: redis.Redis) -> None:
    for n in range(600):
        put(saver, f"{n:04}", ns="" if n % 3 else "sub", vers={"a": n}, a=n)
    for name in ("0001", "0002", "0004"):
        saver.put_writes(cfg("t", "", name), [("x", i) for i in range(400)], "task")
    found = stats_of(saver)
    assert as_counted(found) == counted(raw)
    assert (found.checkpoints.count, found.blobs.count, found.writes.count) == (600, 600, 1200)


@on_valkey
def test_what_is_no_thread_is_refused_before_anything_is_read(make_saver: MakeSaver) -> None:
    s = unreachable(make_saver)
    with pytest.raises(ValueError, match="thread_id"):
        s.stats("")
    odd: Any
    for odd in (1.5, True, ["t"], b"t"):
        with pytest.raises(TypeError, match="thread_id"):
            s.stats(odd)
