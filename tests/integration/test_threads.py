"""Whole threads: deleting, copying, pruning, deleting by run, and the list of threads."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import redis
from langgraph.checkpoint.base.id import uuid6

from redis_ckpt import ThreadInfo
from tests.audit import PARTS, dump
from tests.monitor import monitor
from tests.savers import IDS, Facade, cfg, ids, put, steps, values, version, writes
from tests.servers import Server, on_real_servers

DAY_MS = 24 * 3600 * 1000


def test_glob_characters_in_an_id_are_only_characters(saver: Facade) -> None:
    for name in ("user*", "user1", "user[1]", "user?"):
        put(saver, 1, t=name, a=name)
    saver.delete_thread("user*")
    saver.delete_thread("user[1]")
    for name in ("user1", "user?"):
        assert values(saver.get_tuple(cfg(name))) == {"a": name}
    for name in ("user*", "user[1]"):
        assert saver.get_tuple(cfg(name)) is None


@on_real_servers
def test_nothing_scans_with_the_users_text(saver: Facade, server: Server) -> None:
    put(saver, 1, t="user*", meta={"run_id": "run*"}, a=1)
    with monitor(server) as lines:
        saver.list(None)
        saver.threads()
        saver.copy_thread("user*", "user[1]")
        saver.prune(["user*"])
        saver.delete_for_runs(["run*"])
        saver.delete_thread("user*")
        saver.delete_thread("user[1]")
    scans = [line for line in lines if line.name in ("SCAN", "KEYS", "HSCAN", "SSCAN", "ZSCAN")]
    assert scans
    assert all(b"ckpt:{*}:order" in line.arguments for line in scans)


def test_deleting_a_thread_leaves_no_key_of_it(saver: Facade, raw: redis.Redis) -> None:
    for ns in ("", "sub:1"):
        put(saver, 1, ns=ns, a=1)
        saver.put_writes(cfg("t", ns, IDS[1]), [("x", 1)], "k")
    put(saver, 1, t="other", a=1)
    before = {key for key in raw.scan_iter() if b"{other}" in key}
    saver.delete_thread("t")
    assert set(raw.scan_iter()) == before
    saver.delete_thread("t")
    saver.delete_thread("never there")
    assert set(raw.scan_iter()) == before


def test_a_late_write_does_not_bring_a_deleted_thread_back(saver: Facade, raw: redis.Redis) -> None:
    config = put(saver, 1, a=1)
    saver.delete_thread("t")
    saver.put_writes(config, [("x", 1)], "late")
    assert saver.get_tuple(cfg()) is None
    assert saver.get_tuple(config) is None
    assert saver.list(None) == []
    assert saver.list(cfg()) == []
    assert saver.threads() == []
    saver.delete_thread("t")
    assert list(raw.scan_iter()) == []


def test_without_a_deadline_only_the_keys_of_runs_expire(saver: Facade, raw: redis.Redis) -> None:
    put(saver, 1, meta={"run_id": "r"}, a=1)
    saver.put_writes(cfg("t", "", IDS[1]), [("x", 1)], "k")
    saver.copy_thread("t", "t2")
    ttls = {key: raw.pttl(key) for key in raw.scan_iter()}
    assert set(ttls) == {f"ckpt:{{{t}}}:{part}".encode() for t in ("t", "t2") for part in PARTS} | {b"ckpt:run:{r}"}
    assert 0 < ttls.pop(b"ckpt:run:{r}") <= DAY_MS
    assert set(ttls.values()) == {-1}


def _two_versions(s: Facade) -> None:
    put(s, 1, a="A", b="B")
    vers: Any = {"a": version(1), "b": version(2)}
    put(s, 2, parent=1, a="A", b="B2", vers=vers, new={"b": version(2)})
    for i in (1, 2):
        s.put_writes(cfg("t", "", IDS[i]), [("x", i)], "k")


@pytest.mark.parametrize("protocol", [2, 3])
def test_pruning_keeps_what_the_latest_shares(saver: Facade, raw: redis.Redis) -> None:
    _two_versions(saver)
    saver.prune(["t"], strategy="keep_latest")
    (found,) = saver.list(cfg())
    assert found.checkpoint["id"] == IDS[2]
    assert values(found) == {"a": "A", "b": "B2"}
    assert writes(found) == [("k", "x", 2)]
    fields = {f"\x1fa\x1f={version(1)}".encode(), f"\x1fb\x1f={version(2)}".encode()}
    assert set(raw.hkeys("ckpt:{t}:blobs")) == fields
    assert raw.hlen("ckpt:{t}:writes") == 1
    once = dump(raw)
    saver.prune(["t"])
    assert dump(raw) == once


def test_pruning_nothing_touches_nothing(saver: Facade, raw: redis.Redis) -> None:
    _two_versions(saver)
    before = dump(raw)
    saver.prune([])
    saver.prune(["unknown"])
    saver.prune(["unknown"], strategy="delete")
    with pytest.raises(ValueError, match="keep_everything"):
        saver.prune(["t"], strategy="keep_everything")
    with pytest.raises(TypeError):
        saver.prune("t")
    assert dump(raw) == before


def test_pruning_with_delete_removes_the_threads_alone(saver: Facade) -> None:
    for name in ("t1", "t2", "t3"):
        put(saver, 1, t=name, a=1)
    saver.prune(["t1", "t3"], strategy="delete")
    assert [info.thread_id for info in saver.threads()] == ["t2"]


def test_pruning_keeps_the_latest_of_every_namespace(saver: Facade) -> None:
    for i in (1, 2, 3):
        for ns in ("", "sub", "call:1"):
            put(saver, i, ns=ns, a=(ns, i))
    saver.prune(["t"])
    for ns in ("", "sub", "call:1"):
        assert ids(saver.list(cfg("t", ns))) == [IDS[3]]
        assert values(saver.get_tuple(cfg("t", ns))) == {"a": [ns, 3]}


def test_pruning_leaves_no_call_whose_root_checkpoint_is_gone(saver: Facade, server: Server, raw: redis.Redis) -> None:
    """A subgraph call's namespace has a colon; that of a subgraph with its own checkpointer has none."""
    calls = 500 if server.real else 60
    roots = [f"{n:04}" for n in range(calls // 10)]
    for n, root in enumerate(roots):
        put(saver, root, a=n)
    for n in range(calls):
        meta = {"parents": {"": roots[n // 10]}}
        put(saver, f"{n:06}", ns=f"sub:{n}", meta=meta, a=n)
        saver.put_writes(cfg("t", f"sub:{n}", f"{n:06}"), [("x", n)], "k")
    put(saver, "000000", ns="sub", meta={"parents": {"": roots[0]}}, a="own checkpointer")
    put(saver, "000000", ns="sub:unsaved", meta={"parents": {"": "not saved yet"}}, a="running")
    saver.prune(["t"])
    kept = {item.config["configurable"]["checkpoint_ns"] for item in saver.list({"configurable": {"thread_id": "t"}})}
    assert kept == {"", "sub", "sub:unsaved"} | {f"sub:{n}" for n in range(calls - 10, calls)}
    assert raw.hlen("ckpt:{t}:blobs") == len(kept)
    assert raw.hlen("ckpt:{t}:writes") == 10


def test_a_copy_outlives_its_source(saver: Facade) -> None:
    put(saver, 1, a=1)
    put(saver, 2, parent=1, a=2)
    put(saver, 1, ns="sub:1", z=1)
    saver.put_writes(cfg("t", "", IDS[2]), [("x", 1)], "k")
    saver.copy_thread("t", "t2")
    saver.delete_thread("t")
    found = saver.list({"configurable": {"thread_id": "t2"}})
    assert len(found) == 3
    latest = saver.get_tuple(cfg("t2"))
    assert latest is not None
    assert latest.config == cfg("t2", "", IDS[2])
    assert latest.parent_config == cfg("t2", "", IDS[1])
    assert writes(latest) == [("k", "x", 1)]
    assert values(saver.get_tuple(latest.parent_config)) == {"a": 1}
    assert values(saver.get_tuple(cfg("t2", "sub:1"))) == {"z": 1}


def test_a_copy_and_its_source_go_separate_ways(saver: Facade) -> None:
    put(saver, 1, a=1)
    saver.copy_thread("t", "t2")
    put(saver, 2, parent=1, a="source")
    put(saver, 3, t="t2", parent=1, a="copy")
    assert steps(saver.list(cfg("t"))) == [2, 1]
    assert steps(saver.list(cfg("t2"))) == [3, 1]


def test_copying_onto_a_thread_with_checkpoints_is_refused(saver: Facade, raw: redis.Redis) -> None:
    put(saver, 1, t="t", a="t")
    put(saver, 2, t="taken", a="taken")
    before = dump(raw)
    for target in ("taken", "t"):
        with pytest.raises(ValueError, match=f"'{target}'"):
            saver.copy_thread("t", target)
    saver.copy_thread("missing", "taken")
    saver.copy_thread("missing", "new")
    assert dump(raw) == before
    saver.copy_thread("t", "once")
    with pytest.raises(ValueError, match="'once'"):
        saver.copy_thread("t", "once")


def test_a_copy_replaces_stray_writes_of_its_target(saver: Facade) -> None:
    put(saver, 1, a=1)
    saver.put_writes(cfg("t", "", IDS[1]), [("x", "of the source")], "k")
    saver.put_writes(cfg("t2", "", IDS[1]), [("x", "stray"), ("y", "stray")], "k")
    saver.copy_thread("t", "t2")
    assert writes(saver.get_tuple(cfg("t2"))) == [("k", "x", "of the source")]


def _runs(s: Facade) -> None:
    for i in range(4):
        put(s, i, parent=i - 1 if i else None, meta={"run_id": f"run-{i // 2}"}, a=i)
        s.put_writes(cfg("t", "", IDS[i]), [("x", i)], "k")
    put(s, 5, t="other", meta={"run_id": "run-1"}, a=5)
    put(s, 6, t="none", a=6)


@pytest.mark.parametrize("keys_are_gone", [False, True], ids=["noted", "expired"])
def test_deleting_a_run_removes_what_it_wrote_and_nothing_else(
    saver: Facade, raw: redis.Redis, keys_are_gone: bool
) -> None:
    _runs(saver)
    assert raw.smembers("ckpt:run:{run-1}") == {b"t", b"other"}
    if keys_are_gone:
        raw.delete("ckpt:run:{run-0}", "ckpt:run:{run-1}")
    saver.delete_for_runs(["run-1"])
    assert ids(saver.list(None)) == [IDS[6], IDS[1], IDS[0]]
    assert values(saver.get_tuple(cfg())) == {"a": 1}
    assert [writes(item)[0][2] for item in saver.list(cfg())] == [1, 0]
    assert raw.hlen("ckpt:{t}:blobs") == 2
    assert not [key for key in raw.scan_iter() if b"{other}" in key]
    saver.delete_for_runs(["run-1"])
    assert ids(saver.list(None)) == [IDS[6], IDS[1], IDS[0]]


def test_deleting_runs_that_are_not_there_touches_nothing(saver: Facade, raw: redis.Redis) -> None:
    _runs(saver)
    before = dump(raw)
    saver.delete_for_runs([])
    saver.delete_for_runs(["unknown"])
    with pytest.raises(TypeError):
        saver.delete_for_runs("run-1")
    assert dump(raw) == before


def test_values_that_another_run_still_refers_to_stay(saver: Facade) -> None:
    put(saver, 1, meta={"run_id": "first"}, a="shared", vers={"a": 1})
    put(saver, 2, parent=1, meta={"run_id": "second"}, a="shared", b=2, vers={"a": 1, "b": 1}, new={"b": 1})
    saver.delete_for_runs(["first"])
    (found,) = saver.list(cfg())
    assert values(found) == {"a": "shared", "b": 2}


def test_a_run_is_found_in_the_copies_of_its_threads(saver: Facade) -> None:
    put(saver, 1, meta={"run_id": "r"}, a=1)
    saver.copy_thread("t", "t2")
    saver.delete_for_runs(["r"])
    assert saver.list(None) == []


def test_threads_tell_what_is_stored(saver: Facade) -> None:
    assert saver.threads() == []
    newest = str(uuid6(clock_seq=1))
    made = datetime.now(timezone.utc)
    put(saver, 1, t="a:1", a=1)
    put(saver, newest, t="a:1", ns="sub:1", a=1)
    put(saver, "zzz", t="b", ns="only", a=1)
    found = {info.thread_id: info for info in saver.threads()}
    first = found["a:1"]
    assert isinstance(first, ThreadInfo)
    assert set(first.namespaces) == {"", "sub:1"}
    assert (first.checkpoints, first.newest_id, first.deadline) == (2, max(newest, IDS[1]), None)
    assert first.newest_at is not None
    if first.newest_id == newest:
        assert abs(first.newest_at - made) < timedelta(minutes=1)
    assert found["b"] == ThreadInfo("b", ("only",), 1, "zzz", None, None)


def test_many_threads_are_all_told_of_once(saver: Facade, server: Server) -> None:
    names = {str(uuid.uuid4()) for _ in range(300 if server.real else 40)}
    for name in names:
        put(saver, 1, t=name, a=1)
    found = [info.thread_id for info in saver.threads()]
    assert len(found) == len(names)
    assert set(found) == names
    assert len(saver.list(None)) == len(names)
