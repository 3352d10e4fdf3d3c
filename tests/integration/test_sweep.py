"""What a sweep removes and what it leaves, limit by limit, read against the raw keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis
from langgraph.checkpoint.base.id import uuid6

from redis_ckpt import SweepReport
from redis_ckpt._keys import thread_keys
from tests.savers import IDS, Facade, MakeSaver, arguments, cfg, in_one_colour, on_valkey, put, values, writes

NOW = datetime.now(timezone.utc)
GREGORIAN = datetime(1582, 10, 15, tzinfo=timezone.utc)
KEYS = thread_keys(b"ckpt", "t")


def aged(days: float) -> str:
    """The UUIDv6 that was made so many days ago."""
    ticks = (NOW - timedelta(days=days) - GREGORIAN) // timedelta(microseconds=1) * 10
    return str(UUID(int=(ticks >> 12) << 80 | 6 << 76 | (ticks & 0xFFF) << 64 | 2 << 62 | 0x2C1F3B7A9D55))


def chain(s: Facade, *days: float, t: str = "t", ns: str = "", meta: Any = None) -> list[str]:
    """Checkpoints of these ages, each with a value of its own beside one that never changes."""
    ids = [aged(age) for age in days]
    for parent, name, age in zip([None, *ids], ids, days):  # noqa: B905
        put(s, name, t=t, ns=ns, parent=parent, meta=meta, vers={"own": name, "same": 1}, own=age, same="same")
    return ids


def stats_bytes(s: Facade, t: str = "t") -> int:
    found = s.stats(t)
    assert found is not None
    return found.bytes


def call(s: Facade, ns: str, days: float, root: str, t: str = "t") -> None:
    """A checkpoint of a subgraph call that a root checkpoint started."""
    chain(s, days, t=t, ns=ns, meta={"parents": {"": root}})


def left(s: Facade, t: str = "t", ns: str | None = "") -> list[Any]:
    """The ages of the checkpoints that are left of a namespace (None: of all), oldest first; each must be whole."""
    config: Any = {"configurable": {"thread_id": t} | ({} if ns is None else {"checkpoint_ns": ns})}
    found = s.list(config)
    assert all(values(item)["same"] == "same" for item in found)
    return [values(item)["own"] for item in reversed(found)]


def put_at(s: Facade, name: str, ts: Any, **kwargs: Any) -> None:
    """A checkpoint that says itself when it was made."""
    config, checkpoint, metadata, versions = arguments(
        name, vers={"own": name, "same": 1}, own=ts, same="same", **kwargs
    )
    checkpoint["ts"] = ts
    s.put(config, checkpoint, metadata, versions)


def test_without_limits_only_what_nothing_leads_to_goes(saver: Facade, raw: redis.Redis) -> None:
    roots = chain(saver, 30, 20, 10)
    put(saver, roots[1], parent=roots[0], vers={"own": "other", "same": 1}, own=20, same="same")  # leaves an orphan
    call(saver, "call:kept", 19, roots[1])
    call(saver, "call:over", 35, aged(36))
    call(saver, "call:running", 5, aged(5))
    chain(saver, 50, ns="sub")
    saver.put_writes(cfg("t", "", aged(60)), [("x", "late")], "late")
    saver.put_writes(cfg("t", "", aged(25)), [("x", "of a branch to come")], "early")
    saver.put_writes(cfg("t", "", roots[0]), [("x", "pending")], "task")
    report = saver.sweep(["t"])
    assert (report.checkpoints, report.writes, report.blobs) == (1, 1, 3)
    assert left(saver, ns=None) == [50, 30, 20, 19, 10, 5]
    assert left(saver, ns="call:over") == []
    names: list[bytes] = raw.hkeys(KEYS.writes)  # type: ignore[assignment]
    assert sorted(name.split(b"\x1f")[2] for name in names) == [b"early", b"task"]
    assert raw.hlen(KEYS.blobs) == 6 + 4  # own values, and one a namespace that is the same in all
    assert raw.hget(KEYS.checkpoints, "orphans") is None


@pytest.mark.parametrize("most", [1, 2, 3, 10])
@in_one_colour
def test_keep_last_leaves_the_newest_of_each_namespace(saver: Facade, raw: redis.Redis, most: int) -> None:
    chain(saver, 40, 30, 20, 10)
    chain(saver, 45, 35, ns="sub")
    report = saver.sweep(keep_last=most)
    assert left(saver) == [40, 30, 20, 10][-most:]
    assert left(saver, ns="sub") == [45, 35][-most:]
    kept = min(most, 4) + min(most, 2)
    assert report.checkpoints == report.blobs == 6 - kept
    assert raw.hlen(KEYS.blobs) == kept + 2


@on_valkey
@in_one_colour
def test_a_memory_keeps_what_older_roots_look_for(saver: Facade) -> None:
    """That of a `checkpointer=True` subgraph, whose namespace has no colon: the newest below each root that stays."""
    chain(saver, 40, 30, 20, 10)
    chain(saver, 45, 35, 25, 22, 15, 9, 8, 7, ns="memory")
    saver.sweep(["t"], keep_last=2)
    assert left(saver) == [20, 10]
    assert left(saver, ns="memory") == [22, 8, 7]
    saver.sweep(["t"], older_than=timedelta(days=15))
    assert left(saver, ns=None) == [10, 8, 7]


@pytest.mark.parametrize(
    ("days", "root", "sub"),
    [(0, [10], [45]), (15, [10], [45]), (25, [20, 10], [45]), (47, [40, 30, 20, 10], [45]), (60, None, [50, 45])],
)
@on_valkey
@in_one_colour
def test_older_than_never_takes_the_newest_of_a_namespace(saver: Facade, days: int, root: Any, sub: Any) -> None:
    for seconds in (timedelta(days=days), days * 86_400.0, days * 86_400):
        chain(saver, 40, 30, 20, 10)
        chain(saver, 50, 45, ns="sub")
        saver.sweep(older_than=seconds)
        assert left(saver) == (root or [40, 30, 20, 10])
        assert left(saver, ns="sub") == sub


@pytest.mark.parametrize(
    ("most", "days", "expected"),
    [(1, 25, [10]), (2, 35, [20, 10]), (3, 25, [20, 10]), (10, 25, [20, 10]), (10, 5, [10]), (3, 99, [30, 20, 10])],
)
@on_valkey
@in_one_colour
def test_a_checkpoint_stays_only_if_both_limits_let_it(saver: Facade, most: int, days: int, expected: Any) -> None:
    chain(saver, 40, 30, 20, 10)
    saver.sweep(["t"], keep_last=most, older_than=timedelta(days=days))
    assert left(saver) == expected


OLD = [
    "2020-01-01T00:00:00+00:00",
    "2020-01-01T00:00:00.123456+00:00",
    "2020-01-01T00:00:00Z",
    "2020-01-01T00:00:00",
    "2020-01-01T12:00:00-11:30",
    "2020-01-01",
    "0001-01-01T00:00:00+14:00",
]
UNKNOWN = ["", "yesterday", "2020-13-01T00:00:00+00:00", "1577836800"]


@on_valkey
@in_one_colour
def test_an_id_without_a_time_is_as_old_as_its_ts_says(saver: Facade) -> None:
    young = (NOW - timedelta(days=1)).isoformat()
    for n, ts in enumerate([*OLD, *UNKNOWN, young, OLD[0]]):
        put_at(saver, f"{n:02}", ts)
    report = saver.sweep(["t"], older_than=timedelta(days=5))
    assert left(saver) == [*UNKNOWN, young, OLD[0]]
    assert report.checkpoints == len(OLD)
    saver.sweep(["t"], older_than=0)
    assert left(saver) == [*UNKNOWN, OLD[0]]


@on_valkey
@in_one_colour
def test_the_time_in_an_id_goes_before_ts_and_only_version_6_has_one(saver: Facade) -> None:
    young, old = NOW.isoformat(), OLD[0]
    put_at(saver, aged(10), young)
    put_at(saver, str(uuid6(clock_seq=1)), old)
    put_at(saver, str(UUID(int=uuid4().int, version=1)), old)
    put_at(saver, str(uuid4()), young)
    put_at(saver, "zzz", young)
    saver.sweep(older_than=timedelta(days=5))
    assert sorted(left(saver)) == sorted([old, young, young])


def test_idle_threads_go_at_once_and_as_a_whole(saver: Facade, raw: redis.Redis) -> None:
    stay = {"young", "young-namespace", "pinned", "own", "unknown", "expected"}
    for t in ("idle", *stay):
        chain(saver, 40, 30, t=t)
        chain(saver, 45, 35, t=t, ns="sub")
        saver.put_writes(cfg(t, "", aged(30)), [("x", 1), ("__interrupt__", 2)], "task")
        saver.put_writes(cfg(t, "", aged(29)), [("x", 1)], "early")
    chain(saver, 10, t="young")
    chain(saver, 10, t="young-namespace", ns="sub")
    assert saver.persist("pinned")
    assert saver.expire("own", 10**6)
    put_at(saver, "zzz", "when?", t="unknown")
    saver.put_writes(cfg("expected", "", aged(5)), [("x", 1)], "of a checkpoint to come")
    put_at(saver, "zzz", OLD[0], t="idle-by-ts")
    report = saver.sweep(idle_for=timedelta(days=20))
    assert {info.thread_id for info in saver.threads()} == stay
    assert raw.keys("ckpt:{idle*") == []
    assert (report.threads, report.threads_removed, report.checkpoints) == (8, 2, 5)
    assert (report.writes, report.blobs) == (3, 4 + 2 + 2)
    assert all(left(saver, t)[:2] == [40, 30] for t in stay)
    assert saver.sweep(idle_for=timedelta(days=20)).threads_removed == 0


@pytest.mark.parametrize(
    ("limits", "gone"),
    [
        ({}, []),
        ({"keep_last": 1}, []),
        ({"older_than": timedelta(days=20)}, ["old"]),
        ({"idle_for": timedelta(days=20)}, ["old"]),
        ({"older_than": timedelta(days=99), "idle_for": timedelta(days=20)}, ["old"]),
        ({"older_than": 0}, ["old", "young"]),
        ({"idle_for": 1}, ["old", "young"]),
    ],
    ids=str,
)
@on_valkey
@in_one_colour
def test_threads_of_nothing_but_writes_go_by_the_age_of_the_ids(
    saver: Facade, raw: redis.Redis, limits: Any, gone: list[str]
) -> None:
    for t, name in (("old", aged(30)), ("young", aged(10)), ("unknown", "zzz")):
        saver.put_writes(cfg(t, "", name), [("x", 1), ("y", 2)], "task")
    report = saver.sweep(**limits)
    kept = {"old", "young", "unknown"} - set(gone)
    assert set(raw.scan_iter()) == {f"ckpt:{{{t}}}:{part}".encode() for t in kept for part in ("writes", "pending")}
    assert (report.threads, report.checkpoints, report.writes) == (3, 0, 2 * len(gone))
    saver.delete_thread("unknown")
    saver.sweep(older_than=0)
    assert raw.keys() == []


@in_one_colour
def test_writes_that_may_still_get_their_checkpoint_stay(saver: Facade, raw: redis.Redis) -> None:
    """Those of a thread that has checkpoints, if their ids are newer; and the first of a new one, for an hour."""
    chain(saver, 40, 30)
    saver.put_writes(cfg("t", "", aged(29)), [("x", 1)], "task")
    saver.put_writes(cfg("new", "", str(uuid6(clock_seq=1))), [("x", 1)], "task")
    assert saver.sweep(older_than=0, idle_for=timedelta(days=99)).writes == 0
    assert saver.sweep(["new"], idle_for=1).writes == 0
    assert (raw.hlen(KEYS.writes), raw.hlen("ckpt:{new}:writes")) == (1, 1)


@in_one_colour
def test_calls_go_with_the_root_checkpoint_that_started_them(saver: Facade) -> None:
    """The namespaces of a `checkpointer=True` subgraph, without a colon, stay."""
    roots = chain(saver, 40, 30, 20, 10)
    for n, root in enumerate(roots):
        call(saver, f"call:{n}", 39 - 10 * n, root)
        call(saver, f"call:{n}|inner:1", 38.5 - 10 * n, root)
        call(saver, "sub", 38 - 10 * n, root)
    saver.sweep(["t"], older_than=timedelta(days=25))
    kept = {item.config["configurable"]["checkpoint_ns"] for item in saver.list({"configurable": {"thread_id": "t"}})}
    assert kept == {"", "sub", "call:2", "call:2|inner:1", "call:3", "call:3|inner:1"}
    saver.sweep(["t"], keep_last=1)
    assert left(saver, ns=None) == [10, 9, 8.5, 8]


@on_valkey
@in_one_colour
def test_of_500_calls_those_of_the_kept_roots_stay(saver: Facade, raw: redis.Redis) -> None:
    for root in range(50):
        name = f"{root:04}"
        put(saver, name, vers={"a": name}, a=root)
        for n in range(10):
            put(saver, f"{root:04}-{n}", ns=f"call:{root}-{n}", meta={"parents": {"": name}}, a=n)
            saver.put_writes(cfg("t", f"call:{root}-{n}", f"{root:04}-{n}"), [("x", n)], "task")
    dry = saver.sweep(["t"], keep_last=3, dry_run=True)
    report = saver.sweep(["t"], keep_last=3)
    assert (report.checkpoints, report.writes, report.blobs) == (47 * 11, 470, 47 * 11)
    assert report.bytes_freed == dry.bytes_freed
    (info,) = saver.threads()
    assert set(info.namespaces) == {""} | {f"call:{root}-{n}" for root in (47, 48, 49) for n in range(10)}
    assert raw.hlen(KEYS.writes) == raw.zcard(KEYS.pending) == 30
    assert raw.hlen(KEYS.blobs) == 33


def delta_step(s: Facade, i: int, snapshot: bool) -> None:
    """A step of a delta channel: its value is rebuilt from the writes of its ancestors, down to a snapshot."""
    meta = {} if snapshot else {"counters_since_delta_snapshot": {"log": [1, 1]}}
    log = {"log": [f"snapshot {i}"]} if snapshot else {}
    put(s, i, parent=i - 1 if i else None, meta=meta, vers={"log": i + 1, "a": i + 1}, a=i, **log)
    s.put_writes(cfg("t", "", IDS[i]), [("log", i), ("a", i)], "task")


@pytest.mark.parametrize("limits", [{"keep_last": 1}, {"older_than": 0}, {"keep_last": 2, "older_than": 1}], ids=str)
@on_valkey
@in_one_colour
def test_what_a_delta_channel_is_rebuilt_from_stays(saver: Facade, raw: redis.Redis, limits: Any) -> None:
    for i in range(6):
        delta_step(saver, i, snapshot=i == 2)
    before = saver.get_delta_channel_history(config=cfg(), channels=["log"])
    assert before["log"]["seed"] == ["snapshot 2"]
    report = saver.sweep(["t"], **limits)
    assert (report.checkpoints, report.writes, report.blobs) == (5, 4, 5)
    # the ancestors back to the snapshot are there for that alone: nobody sees them any more
    assert [item.metadata["step"] for item in saver.list(cfg())] == [5]
    assert [saver.get_tuple(cfg("t", "", name)) for name in IDS[:5]] == [None] * 5
    assert saver.get_delta_channel_history(config=cfg(), channels=["log"]) == before
    assert set(raw.hkeys(KEYS.blobs)) == {b"\x1fa\x1f6", b"\x1flog\x1f3"}
    assert saver.sweep(["t"], **limits) == SweepReport(threads=1)


@in_one_colour
def test_ancestors_go_once_a_snapshot_stands_for_them(saver: Facade, raw: redis.Redis) -> None:
    for i in range(5):
        delta_step(saver, i, snapshot=i == 0)
    saver.sweep(["t"], keep_last=1)
    assert raw.zcard(KEYS.order) == 5
    delta_step(saver, 5, snapshot=True)
    held = stats_bytes(saver)
    dry = saver.sweep(["t"], keep_last=1, dry_run=True)
    report = saver.sweep(["t"], keep_last=1)
    assert report == replace(dry, dry_run=False)
    assert (report.checkpoints, report.writes, report.blobs) == (1, 10, 2)  # what readers saw, and all that is gone
    assert report.bytes_freed == held - stats_bytes(saver)
    assert raw.zcard(KEYS.order) == raw.hlen(KEYS.checkpoints) - 1 == 1


@in_one_colour
def test_an_ancestor_that_is_put_again_is_a_checkpoint_again(saver: Facade, raw: redis.Redis) -> None:
    for i in range(4):
        delta_step(saver, i, snapshot=i == 0)
    saver.sweep(["t"], keep_last=1)
    put(saver, 0, vers={"log": 1, "a": 1}, a="again", log="snapshot again")
    assert [values(item)["a"] for item in saver.list(cfg())] == [3, "again"]
    assert raw.zcard(KEYS.order) == 4
    assert saver.get_delta_channel_history(config=cfg(), channels=["log"])["log"]["seed"] == "snapshot again"


@in_one_colour
def test_pending_writes_stay_with_their_checkpoint(saver: Facade) -> None:
    ids = chain(saver, 40, 30, 20)
    for name in ids:
        saver.put_writes(cfg("t", "", name), [("__interrupt__", name), ("x", 1)], "asks")
    report = saver.sweep(["t"], keep_last=1, older_than=0)
    assert (report.checkpoints, report.writes) == (2, 4)
    assert writes(saver.get_tuple(cfg())) == [("asks", "__interrupt__", ids[2]), ("asks", "x", 1)]


@on_valkey
@in_one_colour
def test_a_sweep_of_all_threads_is_one_of_this_prefix(make_saver: MakeSaver) -> None:
    for prefix in ("ckpt", "ckpt2", "ckpt:x"):
        for t in ("t", "u:1"):
            chain(make_saver(prefix=prefix), 40, 30, t=t)
    report = make_saver().sweep(keep_last=1)
    assert (report.threads, report.checkpoints) == (2, 2)
    assert [len(make_saver(prefix=prefix).list(None)) for prefix in ("ckpt", "ckpt2", "ckpt:x")] == [2, 4, 4]
