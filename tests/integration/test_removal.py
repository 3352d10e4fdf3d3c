"""prune, delete_for_runs and copy_thread, read against the raw keys, and under fire of writers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from redis_ckpt import DamagedCheckpointError, RedisSaver, policies
from redis_ckpt._expiry import Expiry
from redis_ckpt._flow import Primed, run
from redis_ckpt._guards import Guards
from redis_ckpt._keys import thread_keys
from redis_ckpt._known import Cache
from redis_ckpt._ops import Store, planning, remove
from redis_ckpt._recent import Recent
from tests.savers import IDS, Facade, MakeSaver, cfg, put, values
from tests.servers import Server, on_real_servers

KEYS = thread_keys(b"ckpt", "t")
STORE = Store(b"ckpt", JsonPlusSerializer(), Expiry(), Cache(0), Guards.of(None, "ignore", None), Recent())


def steps(saver: Any, count: int, *, ns: str = "", meta: dict[str, Any] | None = None, **fixed: Any) -> list[str]:
    """A chain of checkpoints, each with a new value of `n` beside what never changes."""
    ids: list[str] = []
    for n in range(count):
        checkpoint_id = str(uuid6(clock_seq=n))
        values = {"n": n, **fixed}
        versions = {"n": n + 1} | dict.fromkeys(fixed, 1)
        new = versions if n == 0 else {"n": n + 1}
        checkpoint: Any = {
            "v": 4,
            "id": checkpoint_id,
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": {},
            "updated_channels": None,
        }
        metadata = {"source": "loop", "step": n, **(meta or {})}
        saver.put(cfg("t", ns, ids[-1] if ids else None), checkpoint, metadata, new)
        ids.append(checkpoint_id)
    return ids


def test_pruning_a_long_thread_leaves_just_what_its_head_needs(saver: Facade, raw: redis.Redis) -> None:
    ids = steps(saver, 700, kept="same")
    saver.put_writes(cfg("t", "", ids[-1]), [("x", 1)], "k")
    saver.put_writes(cfg("t", "", ids[0]), [("x", 1)], "k")
    saver.prune(["t"])
    assert sorted(raw.hkeys(KEYS.checkpoints)) == sorted([b"\x1f" + ids[-1].encode(), b"epoch"])
    assert sorted(raw.hkeys(KEYS.blobs)) == [b"\x1fkept\x1f1", b"\x1fn\x1f700"]
    assert raw.hlen(KEYS.writes) == raw.zcard(KEYS.pending) == raw.zcard(KEYS.order) == 1
    found = saver.get_tuple(cfg("t"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"n": 699, "kept": "same"}
    assert [w[1:] for w in found.pending_writes or ()] == [("x", 1)]


def test_what_a_replaced_checkpoint_referred_to_goes_with_the_next_prune(saver: Facade, raw: redis.Redis) -> None:
    put(saver, 1, a="old", b="same", vers={"a": 1, "b": 1})
    put(saver, 1, a="new", b="same", vers={"a": 2, "b": 1})
    assert raw.hget(KEYS.checkpoints, "orphans") == b"\x1fa\x1f1\x1e"
    put(saver, 2, parent=1, a="old again", vers={"a": 1})
    saver.prune(["t"])
    assert raw.hkeys(KEYS.blobs) == [b"\x1fa\x1f1"]
    assert raw.hget(KEYS.checkpoints, "orphans") is None
    put(saver, 2, parent=1, a=3, vers={"a": 3})
    saver.prune(["t"])
    assert raw.hkeys(KEYS.blobs) == [b"\x1fa\x1f3"]


def test_a_value_of_a_version_that_its_checkpoint_does_not_have_goes_with_the_next_prune(
    saver: Facade, raw: redis.Redis
) -> None:
    put(saver, 1, a=1, vers={"a": 1}, new={"a": 2})
    assert values(saver.get_tuple(cfg("t"))) == {"a": 1}
    assert sorted(raw.hkeys(KEYS.blobs)) == [b"\x1fa\x1f1", b"\x1fa\x1f2"]
    saver.prune(["t"])
    assert raw.hkeys(KEYS.blobs) == [b"\x1fa\x1f1"]


def test_writes_that_came_after_their_checkpoint_was_pruned_go_with_the_next_prune(
    saver: Facade, raw: redis.Redis
) -> None:
    old = steps(saver, 3)
    put(saver, "zz", ns="sub", a=1)
    saver.prune(["t"])
    for n, checkpoint_id in enumerate(old[:2]):
        saver.put_writes(cfg("t", "" if n else "gone:1", checkpoint_id), [("x", 1), ("y", 2)], "late")
    saver.put_writes(cfg("t", "", old[2]), [("x", 3)], "pending")
    saver.put_writes(cfg("t", "", "zzz"), [("x", 4)], "early")
    saver.prune(["t"])
    names: list[Any] = raw.hkeys(KEYS.writes)
    left = sorted(name.split(b"\x1f")[2] for name in names)
    assert left == [b"early", b"pending"]
    assert raw.zcard(KEYS.pending) == 2


def test_a_second_prune_changes_nothing(saver: Facade, raw: redis.Redis) -> None:
    steps(saver, 5)
    saver.prune(["t"])
    before = {key: raw.dump(key) if raw.type(key) != b"none" else None for key in KEYS}
    saver.prune(["t", "unknown"])
    assert {key: raw.dump(key) if raw.type(key) != b"none" else None for key in KEYS} == before


def test_removing_every_checkpoint_leaves_writes_that_came_before_theirs(saver: Facade, raw: redis.Redis) -> None:
    put(saver, 1, a=1, meta={"run_id": "r1"})
    saver.put_writes(cfg("t", "", IDS[5]), [("x", 1)], "early")
    saver.delete_for_runs(["r1"])
    assert saver.get_tuple(cfg("t")) is None
    assert raw.exists(KEYS.checkpoints, KEYS.blobs, KEYS.order) == 0
    put(saver, 5, a=5)
    found = saver.get_tuple(cfg("t"))
    assert found is not None
    assert found.pending_writes == [("early", "x", 1)]


def test_a_run_is_found_by_its_key_and_without_it(saver: Facade, raw: redis.Redis) -> None:
    for thread in ("a", "b"):
        put(saver, 1, t=thread, a=1, meta={"run_id": "r:1"})
        put(saver, 2, t=thread, a=2, meta={"run_id": "r2"})
    assert raw.smembers("ckpt:run:{r%3A1}") == {b"a", b"b"}
    saver.delete_for_runs(["r:1"])
    assert [t.checkpoint["id"] for t in saver.list(None)] == [IDS[2], IDS[2]]
    raw.delete("ckpt:run:{r2}")
    saver.delete_for_runs(["r2"])
    assert saver.list(None) == []


def test_a_copy_is_found_by_its_runs(saver: Facade, raw: redis.Redis) -> None:
    put(saver, 1, a=1, meta={"run_id": "r1"})
    put(saver, 2, a=2, meta={"run_id": "r2"})
    raw.delete("ckpt:run:{r2}")
    saver.copy_thread("t", "u")
    assert raw.smembers("ckpt:run:{r1}") == {b"t", b"u"}
    assert raw.exists("ckpt:run:{r2}") == 0  # a key that would name only the copy would hide the rest
    saver.delete_for_runs(["r1"])
    assert sorted(t.config["configurable"]["thread_id"] for t in saver.list(None)) == ["t", "u"]
    saver.delete_for_runs(["r2"])
    assert saver.list(None) == []


@pytest.mark.parametrize("server", ["fake"], indirect=True)
def test_a_thread_of_hundreds_of_namespaces_tells_them_all(saver: Facade) -> None:
    names = [f"call:{n:03}" for n in range(450)]
    for name in names:
        put(saver, 1, ns=name, a=1)
    (info,) = saver.threads()
    assert list(info.namespaces) == names
    assert info.checkpoints == 450


@pytest.mark.parametrize("bad", ["t", b"t"])
def test_one_text_is_no_list_of_ids(saver: Facade, bad: Any) -> None:
    for method in ("prune", "delete_for_runs"):
        with pytest.raises(TypeError, match="sequence of ids"):
            saver.call(method, bad)


def test_ids_of_a_prune_are_checked_before_anything_is_removed(saver: Facade) -> None:
    put(saver, 1, a=1)
    put(saver, 2, a=2)
    with pytest.raises(ValueError, match="thread_id"):
        saver.prune(["t", ""])
    with pytest.raises(ValueError, match="strategy"):
        saver.call("prune", ["t"], strategy="keep_first")
    assert len(saver.list(cfg("t"))) == 2


@pytest.mark.unaudited
def test_a_thread_that_lost_a_record_is_not_pruned_by_guess(saver: Facade, raw: redis.Redis) -> None:
    put(saver, 1, a=1)
    put(saver, 2, a=2)
    raw.hdel(KEYS.checkpoints, b"\x1f" + IDS[1].encode())
    with pytest.raises(DamagedCheckpointError):
        saver.prune(["t"])
    assert raw.hlen(KEYS.blobs) == 2


@pytest.mark.unaudited
def test_a_thread_that_lost_its_order_is_not_taken_for_an_empty_one(saver: Facade, raw: redis.Redis) -> None:
    put(saver, 1, a=1)
    raw.delete(KEYS.order)
    with pytest.raises(DamagedCheckpointError, match="order"):
        saver.prune(["t"])


def _between_trips(saver: RedisSaver, meddle: Callable[[int], None]) -> Any:
    """A send that calls `meddle` with the number of each trip before it goes."""
    count = itertools.count()

    def send(trip: Any) -> Any:
        meddle(next(count))
        return saver._wire.send(trip)

    return send


@pytest.fixture
def blocking(server: Server) -> Iterator[RedisSaver]:
    with RedisSaver(redis_client=server.raw()) as saver:
        saver.setup()  # so that the tests below can count trips
        yield saver


def test_a_newer_checkpoint_between_plan_and_step_is_kept_with_all_it_needs(blocking: RedisSaver) -> None:
    ids = steps(blocking, 5, kept="same")
    late: list[str] = []

    def meddle(trip: int) -> None:
        if trip == 1:  # the plan is made, its step not yet sent
            late.append(str(uuid6(clock_seq=9)))
            checkpoint: Any = {
                "v": 4,
                "id": late[0],
                "ts": "",
                "channel_values": {"n": 1},
                "channel_versions": {"n": 2},  # an old value, which the plan would have removed
                "versions_seen": {},
                "updated_channels": None,
            }
            blocking.put(cfg("t", "", ids[-1]), checkpoint, {}, {})

    run(Primed(remove.prune(STORE, ["t"], "keep_latest")), _between_trips(blocking, meddle))
    assert [t.checkpoint["id"] for t in blocking.list(cfg("t"))] == late
    found = blocking.get_tuple(cfg("t"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"n": 1}


@pytest.mark.parametrize("late_id", [IDS[0], IDS[3]], ids=["an older id", "the same id with other values"])
def test_other_changes_between_plan_and_step_make_a_new_plan(blocking: RedisSaver, late_id: str) -> None:
    for n in (1, 2, 3):
        put(blocking, n, a=n, vers={"a": n})

    def meddle(trip: int) -> None:
        if trip == 1:
            put(blocking, IDS.index(late_id), a=1, vers={"a": 1}, new={})

    run(Primed(remove.prune(STORE, ["t"], "keep_latest")), _between_trips(blocking, meddle))
    found = list(blocking.list(cfg("t")))
    assert [t.checkpoint["id"] for t in found] == [IDS[3]]
    assert found[0].checkpoint["channel_values"] == {"a": 1 if late_id == IDS[3] else 3}


def test_a_thread_deleted_and_made_anew_between_plan_and_step_is_not_touched(blocking: RedisSaver) -> None:
    for n in (1, 2):
        put(blocking, n, a=n)

    def meddle(trip: int) -> None:
        if trip == 1:
            blocking.delete_thread("t")
            for n in (1, 2):
                put(blocking, n, a=n * 10)

    runs = {b"none"}
    tries: list[int] = []

    def keep_once(thread: Any) -> Any:
        tries.append(1)
        kept = policies.without_runs(thread, runs)
        return kept._replace(checkpoints=kept.checkpoints - {b"\x1f" + IDS[1].encode()}) if len(tries) == 1 else kept

    run(Primed(planning.remove_all_but(STORE, "t", keep_once)), _between_trips(blocking, meddle))
    assert [t.checkpoint["channel_values"] for t in blocking.list(cfg("t"))] == [{"a": 20}, {"a": 10}]


def test_a_thread_that_grows_while_it_is_read_is_read_whole(
    blocking: RedisSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "HEADERS_PAGE", 3)
    ids = steps(blocking, 10)
    grown: list[str] = []

    def meddle(trip: int) -> None:
        if trip in (1, 3):
            grown.extend(steps_on(blocking, ids[-1]))

    thread = run(Primed(planning.read_thread(b"ckpt", "t")), _between_trips(blocking, meddle))
    assert thread is not None
    assert sorted(thread.headers) == sorted(b"\x1f" + i.encode() for i in [*ids, *grown])


def steps_on(saver: Any, parent: str) -> list[str]:
    checkpoint_id = str(uuid6(clock_seq=77))
    checkpoint: Any = {
        "v": 4,
        "id": checkpoint_id,
        "ts": "",
        "channel_values": {"late": 1},
        "channel_versions": {"late": checkpoint_id},
        "versions_seen": {},
        "updated_channels": None,
    }
    saver.put(cfg("t", "", parent), checkpoint, {}, {"late": checkpoint_id})
    return [checkpoint_id]


def test_a_thread_that_never_rests_ends_in_a_clear_error(blocking: RedisSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST_TRIES", 5)
    ids = steps(blocking, 3)

    def meddle(trip: int) -> None:
        steps_on(blocking, ids[-1])

    with pytest.raises(Exception, match="changed 5 times while it was being pruned"):
        run(Primed(remove.prune(STORE, ["t"], "keep_latest")), _between_trips(blocking, meddle))
    assert blocking.get_tuple(cfg("t")) is not None


@on_real_servers
def test_pruning_while_runs_write_never_shows_a_damaged_checkpoint(make_saver: MakeSaver, raw: redis.Redis) -> None:
    saver = make_saver()
    stop = threading.Event()
    faults: list[BaseException] = []
    written: dict[int, str] = {}

    def write(worker: int) -> None:
        try:
            own = make_saver_sync(raw)
            for _ in range(60):
                written[worker] = steps(own, 1, kept=worker)[0]
                own.put_writes(cfg("t", "", written[worker]), [("x", worker)], str(uuid4()))
        except BaseException as fault:
            faults.append(fault)

    def read_all() -> None:
        own = make_saver_sync(raw)
        while not stop.is_set():
            try:
                for found in own.list(cfg("t")):
                    assert set(found.checkpoint["channel_values"]) == {"n", "kept"}
            except BaseException as fault:
                faults.append(fault)
                return

    reader = threading.Thread(target=read_all)
    writers = [threading.Thread(target=write, args=(w,)) for w in range(3)]
    for thread in [reader, *writers]:
        thread.start()
    while any(w.is_alive() for w in writers):
        saver.prune(["t"])
    stop.set()
    reader.join()
    assert faults == []
    saver.prune(["t"])
    assert [t.checkpoint["id"] for t in saver.list(cfg("t"))] == [max(written.values())]
    assert raw.hlen(KEYS.blobs) == 2


def make_saver_sync(raw: redis.Redis) -> RedisSaver:
    return RedisSaver(redis_client=raw)
