"""Faults of the server: scripts forgotten, keys and fields lost, newer formats, memory full."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from redis_ckpt import CheckpointerError, DamagedCheckpointError, StorageVersionError
from tests.audit import PARTS, dump
from tests.monitor import monitor
from tests.savers import IDS, Facade, MakeSaver, cfg, ids, put, steps, values, version, writes
from tests.servers import Server, on_real_servers

damages = pytest.mark.unaudited("a part of the thread is removed or changed by hand")

READS: dict[str, Callable[[Facade], Any]] = {
    "latest": lambda s: s.get_tuple(cfg()),
    "by id": lambda s: s.get_tuple(cfg("t", "", IDS[2])),
    "list": lambda s: s.list(cfg()),
    "list all namespaces": lambda s: s.list({"configurable": {"thread_id": "t"}}),
    "filtered list": lambda s: s.list(cfg(), filter={"step": 2}),
}


@pytest.fixture
def thread(saver: Facade) -> Facade:
    """A saver with a thread of two checkpoints with writes, and one in a namespace."""
    put(saver, 1, a="A", b="B")
    vers: Any = {"a": version(1), "b": version(2)}
    put(saver, 2, parent=1, a="A", b="B2", vers=vers, new={"b": version(2)})
    put(saver, 3, ns="sub", c="C")
    for i, ns in ((1, ""), (2, ""), (3, "sub")):
        saver.put_writes(cfg("t", ns, IDS[i]), [("x", i), ("y", -i)], "k")
    return saver


def _calls(s: Facade) -> dict[str, tuple[Callable[[], Any], Callable[[Any], bool]]]:
    """Every operation, and what tells that it was done, once."""
    head = cfg("t", "", IDS[2])
    return {
        "put": (lambda: put(s, 4, parent=2, meta={"run_id": "r"}, a=4), lambda _: steps(s.list(cfg())) == [4, 2, 1]),
        "put_writes": (
            lambda: s.put_writes(head, [("z", 1)], "k2"),
            lambda _: len(writes(s.get_tuple(head))) == 3,
        ),
        "get_tuple": (lambda: s.get_tuple(cfg()), lambda found: values(found) == {"a": 4}),
        "list": (lambda: s.list(cfg()), lambda found: steps(found) == [4, 2, 1]),
        "list filtered": (lambda: s.list(cfg(), filter={"step": 1}), lambda found: steps(found) == [1]),
        "list all": (lambda: s.list(None), lambda found: steps(found) == [4, 3, 2, 1]),
        "history": (
            lambda: s.get_delta_channel_history(config=cfg(), channels=["x"]),
            lambda found: [value for _, _, value in found["x"]["writes"]] == [1, 2],
        ),
        "threads": (s.threads, lambda found: found[0].checkpoints == 4),
        "copy": (lambda: s.copy_thread("t", "t2"), lambda _: steps(s.list(cfg("t2"))) == [4, 2, 1]),
        "prune": (lambda: s.prune(["t2"]), lambda _: steps(s.list(cfg("t2"))) == [4]),
        "delete_for_runs": (lambda: s.delete_for_runs(["r"]), lambda _: steps(s.list(cfg())) == [2, 1]),
        "delete_thread": (lambda: s.delete_thread("t"), lambda _: s.get_tuple(cfg()) is None),
    }


@pytest.mark.parametrize("protocol", [2, 3])
def test_forgotten_scripts_are_loaded_and_the_work_is_done_once(thread: Facade, raw: redis.Redis) -> None:
    for name, (call, done) in _calls(thread).items():
        raw.script_flush()
        result = call()
        raw.script_flush()
        assert done(result), name


def test_many_calls_at_once_survive_a_flush(thread: Facade, raw: redis.Redis) -> None:
    head = cfg("t", "", IDS[1])
    with ThreadPoolExecutor(8) as pool:
        for n in range(5):
            raw.script_flush()
            list(pool.map(lambda m, n=n: thread.put_writes(head, [("z", m)], f"task-{n}-{m}"), range(8)))
    assert len(writes(thread.get_tuple(head))) == 2 + 40


@on_real_servers
def test_a_script_is_loaded_only_when_it_is_missing(make_saver: MakeSaver, server: Server, raw: redis.Redis) -> None:
    raw.script_flush()
    s = make_saver()
    s.setup()
    with monitor(server) as lines:
        for call, _done in _calls(s).values():
            call()
    assert "SCRIPT" not in lines.names()


@damages
@pytest.mark.parametrize("part", PARTS)
def test_a_key_that_was_deleted_by_hand_is_reported(thread: Facade, raw: redis.Redis, part: str) -> None:
    assert raw.delete(f"ckpt:{{t}}:{part}") == 1
    for name, read in READS.items():
        if (part, name) == ("order", "by id"):
            found = thread.get_tuple(cfg("t", "", IDS[2]))  # whole: nothing of it stood in that key
            assert values(found) == {"a": "A", "b": "B2"}
            assert len(writes(found)) == 2
            continue
        with pytest.raises(DamagedCheckpointError, match="'t'") as caught:
            pytest.fail(f"{name}: {read(thread)}")
        assert caught.value.thread_id == "t"
        assert (part == "blobs") == bool(set(caught.value.channels) & {"a", "b", "c"})
        assert isinstance(caught.value, CheckpointerError)


@damages
@pytest.mark.parametrize("part", ["checkpoints", "blobs", "writes", "pending"])
def test_a_history_reports_a_lost_key(thread: Facade, raw: redis.Redis, part: str) -> None:
    raw.delete(f"ckpt:{{t}}:{part}")
    for config in (cfg(), cfg("t", "", IDS[2])):
        with pytest.raises(DamagedCheckpointError, match="'t'"):
            thread.get_delta_channel_history(config=config, channels=["x", "b"])


@damages
def test_a_history_reports_an_ancestor_whose_record_is_lost(thread: Facade, raw: redis.Redis) -> None:
    put(thread, 4, parent=2, d="D")
    raw.hdel("ckpt:{t}:checkpoints", f"\x1f{IDS[2]}")
    with pytest.raises(DamagedCheckpointError, match=IDS[2]):
        thread.get_delta_channel_history(config=cfg(), channels=["x", "b"])


@damages
def test_pruning_reports_a_lost_record_and_removes_nothing(thread: Facade, raw: redis.Redis) -> None:
    raw.hdel("ckpt:{t}:checkpoints", f"\x1f{IDS[1]}")
    before = dump(raw)
    with pytest.raises(DamagedCheckpointError, match=IDS[1]):
        thread.prune(["t"])
    with pytest.raises(DamagedCheckpointError, match=IDS[1]):
        thread.delete_for_runs(["r"])
    assert dump(raw) == before


@damages
@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_thread_can_be_deleted(thread: Facade, raw: redis.Redis, part: str) -> None:
    raw.delete(f"ckpt:{{t}}:{part}")
    thread.delete_thread("t")
    assert list(raw.scan_iter()) == []


LOST = {
    "record": ("checkpoints", f"\x1f{IDS[2]}", ()),
    "shared value": ("blobs", f"\x1fa\x1f={version(1)}", ("a",)),
    "own value": ("blobs", f"\x1fb\x1f={version(2)}", ("b",)),
    "write": ("writes", f"\x1f{IDS[2]}\x1fk\x1f1", ()),
}


@damages
@pytest.mark.parametrize("lost", LOST)
def test_a_field_that_was_deleted_by_hand_is_reported(thread: Facade, raw: redis.Redis, lost: str) -> None:
    part, field, channels = LOST[lost]
    assert raw.hdel(f"ckpt:{{t}}:{part}", field) == 1
    for name, read in READS.items():
        with pytest.raises(DamagedCheckpointError, match="damaged") as caught:
            pytest.fail(f"{name}: {read(thread)}")
        error = caught.value
        assert error.thread_id == "t"
        if lost != "write":  # a lost write is seen in the counts of the whole thread
            assert (error.checkpoint_ns, error.checkpoint_id) == ("", IDS[2])
        assert error.channels == channels


@damages
def test_an_older_checkpoint_that_is_whole_is_still_read(thread: Facade, raw: redis.Redis) -> None:
    raw.hdel("ckpt:{t}:blobs", f"\x1fb\x1f={version(2)}")
    with pytest.raises(DamagedCheckpointError):
        thread.get_tuple(cfg())
    assert values(thread.get_tuple(cfg("t", "", IDS[1]))) == {"a": "A", "b": "B"}
    assert values(thread.get_tuple(cfg("t", "sub"))) == {"c": "C"}


@damages
def test_a_put_heals_a_value_that_it_has(thread: Facade, raw: redis.Redis) -> None:
    raw.delete("ckpt:{t}:blobs")
    vers: Any = {"a": version(1), "b": version(2), "n": version(3)}
    put(thread, 4, parent=2, a="A", b="B2", n=3, vers=vers, new={"n": version(3)})
    assert values(thread.get_tuple(cfg())) == {"a": "A", "b": "B2", "n": 3}


NEWER = {
    "record": ("checkpoints", f"\x1f{IDS[2]}"),
    "value": ("blobs", f"\x1fa\x1f={version(1)}"),
    "write": ("writes", f"\x1f{IDS[2]}\x1fk\x1f0"),
}


@damages
@pytest.mark.parametrize("what", NEWER)
def test_a_record_of_a_newer_format_names_both_versions(thread: Facade, raw: redis.Redis, what: str) -> None:
    part, field = NEWER[what]
    key = f"ckpt:{{t}}:{part}"
    record = raw.hget(key, field)
    assert isinstance(record, bytes)
    assert record[:1] == b"1"
    raw.hset(key, field, b"9" + record[1:])
    before = raw.hgetall(key)
    known = "2" if part == "blobs" else "1"  # only deltas are of the second format
    for name, read in READS.items():
        with pytest.raises(StorageVersionError, match=rf"'9'.*'{known}'") as caught:
            pytest.fail(f"{name}: {read(thread)}")
        assert (caught.value.stored, caught.value.known) == ("9", known)
        assert isinstance(caught.value, CheckpointerError)
    assert raw.hgetall(key) == before


@damages
@pytest.mark.parametrize("what", NEWER)
def test_removing_and_walking_refuse_a_newer_format(thread: Facade, raw: redis.Redis, what: str) -> None:
    part, field = NEWER[what]
    key = f"ckpt:{{t}}:{part}"
    record = raw.hget(key, field)
    assert isinstance(record, bytes)
    raw.hset(key, field, b"9" + record[1:])
    put(thread, 4, parent=2, d="D")
    before = dump(raw)
    config = cfg("t", "", IDS[4])
    with pytest.raises(StorageVersionError, match="'9'"):
        thread.get_delta_channel_history(config=config, channels=["a", "x"])
    if what == "record":
        with pytest.raises(StorageVersionError, match="'9'"):
            thread.prune(["t"])
        with pytest.raises(StorageVersionError, match="'9'"):
            thread.delete_for_runs(["r"])
    assert dump(raw) == before


@on_real_servers
def test_full_memory_is_an_error_and_the_last_good_checkpoint_stands(thread: Facade, raw: redis.Redis) -> None:
    head = cfg("t", "", IDS[2])
    raw.config_set("maxmemory-policy", "noeviction")
    raw.config_set("maxmemory", 1)
    try:
        for call in (
            lambda: put(thread, 4, parent=2, big=b"x" * 100_000),
            lambda: thread.put_writes(head, [("z", b"x" * 100_000)], "k2"),
        ):
            with pytest.raises(redis.exceptions.ResponseError, match="maxmemory"):
                call()
        assert values(thread.get_tuple(cfg())) == {"a": "A", "b": "B2"}
        assert len(writes(thread.get_tuple(cfg()))) == 2
        assert ids(thread.list(cfg())) == [IDS[2], IDS[1]]
    finally:
        raw.config_set("maxmemory", 0)
    put(thread, 4, parent=2, big=b"x" * 100_000)
    assert values(thread.get_tuple(cfg())) == {"big": b"x" * 100_000}
