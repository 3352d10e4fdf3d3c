"""Removing and expiring where something goes wrong in the middle: what is left is whole, and goes with the next try."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import redis
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from redis_ckpt import CheckpointerError, DamagedCheckpointError, RedisSaver
from tests.savers import IDS, arguments, cfg, put, values, writes
from tests.servers import Server, on_fake, on_real_servers

DELTA = {"counters_since_delta_snapshot": {"log": [1, 1]}}


def delta_chain(saver: Any, count: int, thread: str = "t", run: str = "r") -> list[str]:
    """A snapshot, and checkpoints whose `log` is rebuilt from the writes since; none of the ids tells a time."""
    ids = [f"{n:05}" for n in range(count)]
    for n, checkpoint_id in enumerate(ids):
        meta: dict[str, Any] = {"run_id": run} | (DELTA if n else {})
        value = {} if n else {"log": ["first"]}
        vers = {"log": n + 1}
        put(saver, checkpoint_id, t=thread, parent=ids[n - 1] if n else None, meta=meta, vers=vers, new=vers, **value)
        saver.put_writes(cfg(thread, "", checkpoint_id), [("log", [n])], "task")
    return ids


def before_trip(saver: RedisSaver, number: int, happens: Callable[[], Any]) -> None:
    """Something happens before this saver's trip of that number, counted from now."""
    count, send = itertools.count(), saver._wire.send

    def sending(trip: Any) -> list[Any]:
        if next(count) == number:
            happens()
        return send(trip)

    saver._wire.send = sending  # type: ignore[method-assign]


def dies() -> None:
    raise ConnectionError("the process ends here")


@pytest.fixture
def saver(server: Server) -> RedisSaver:
    made = RedisSaver(redis_client=server.raw())
    made.setup()
    return made


@pytest.mark.parametrize("again", ["delete_for_runs", "prune", "sweep"])
def test_a_deletion_of_runs_that_broke_off_leaves_nothing_when_it_is_repeated(
    server: Server, saver: RedisSaver, raw: redis.Redis, again: str
) -> None:
    delta_chain(saver, 260)
    saver.prune(["t"])
    dying = RedisSaver(redis_client=server.raw())
    dying.setup()
    before_trip(dying, 5, dies)  # the runs, three pages of heads, one call that removes
    with pytest.raises(ConnectionError):
        dying.delete_for_runs(["r"])
    assert saver.get_tuple(cfg()) is None
    assert raw.exists("ckpt:{t}:order") == 1  # ancestors are left
    if again == "delete_for_runs":
        saver.delete_for_runs(["r"])
    elif again == "prune":
        saver.prune(["t"])
    else:
        saver.sweep(["t"])
    assert raw.keys("ckpt:{*") == []


@on_real_servers
def test_a_put_in_the_last_moment_of_a_thread_is_no_damage(server: Server, saver: RedisSaver) -> None:
    brief = RedisSaver(redis_client=server.raw(), ttl=0.005)
    for n in range(40):
        put(brief, 1, t=f"t{n}", a=1)
        for _ in range(12):
            put(saver, 2, t=f"t{n}", a=2)
    least = RedisSaver(redis_client=server.raw(), ttl=0.001)
    for n in range(100):
        put(least, 1, t=f"least{n}", a=1)


@pytest.mark.parametrize("limit", ["older_than", "idle_for"])
def test_a_checkpoint_that_is_pruned_before_its_ts_is_read_has_no_age(
    server: Server, saver: RedisSaver, limit: str
) -> None:
    delta_chain(saver, 5)
    other = RedisSaver(redis_client=server.raw())

    def pruned() -> None:
        put(other, "1", parent="00004", meta=DELTA, vers={"log": 9})
        other.prune(["t"])

    before_trip(saver, 1, pruned)
    report = saver.sweep(["t"], older_than=1) if limit == "older_than" else saver.sweep(["t"], idle_for=1)
    assert report.failures == {}
    assert values(other.get_tuple(cfg())) == {}
    assert other.get_delta_channel_history(config=cfg(), channels=["log"])["log"]["writes"]


class Locked(JsonPlusSerializer):
    """A serialiser that has lost the key to what one thread holds."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if b"locked" in data[1]:
            raise ValueError("the key is gone")
        return super().loads_typed(data)


@on_fake
@pytest.mark.unaudited("keys of somebody else")
def test_threads_that_cannot_be_read_do_not_stop_a_sweep(server: Server, raw: redis.Redis) -> None:
    saver = RedisSaver(redis_client=server.raw(), serde=Locked())
    for t in ("a", "locked", "z"):
        delta_chain(saver, 4, t, run="locked" if t == "locked" else "r")
    raw.set("ckpt:{b}:order", "of another type")
    raw.set(b"ckpt:{\xff}:order", "no text")
    report = saver.sweep(older_than=1)
    assert (report.threads, report.checkpoints) == (3, 9)
    assert list(report.failures) == ["b"]
    assert type(report.failures["b"]) is DamagedCheckpointError
    totals = saver.stats()
    assert (totals.threads, totals.damaged) == (3, ("b",))
    with pytest.raises(CheckpointerError, match=r"'b'.*a key of the thread is of another type"):
        saver.stats("b")


@on_fake
def test_pending_sends_of_old_formats_stay_with_the_checkpoint_that_has_them_pending(saver: RedisSaver) -> None:
    def put_old(i: int) -> None:
        config, checkpoint, metadata, versions = arguments(i, parent=i - 1, a=i)
        saver.put(config, {**checkpoint, "v": 3}, metadata, versions)

    put(saver, 0, a=0)
    put(saver, 1, parent=0, a=1)
    sent = [("__pregel_tasks", "one"), ("x", 2), ("__pregel_tasks", "two")]
    saver.put_writes(cfg("t", "", IDS[1]), sent, "task")
    put_old(2)
    before = saver.get_tuple(cfg())
    assert values(before)["__pregel_tasks"] == ["one", "two"]
    saver.prune(["t"])
    assert saver.get_tuple(cfg()) == before
    assert list(saver.list(cfg())) == [before]
    put(saver, 3, parent=2, a=3)
    saver.prune(["t"])
    assert writes(saver.get_tuple(cfg())) == []
    found = saver.stats("t")
    assert found is not None
    assert (found.ancestors.count, found.writes.count) == (0, 0)


def test_a_run_from_a_checkpoint_that_only_delta_channels_still_need_is_refused(
    server: Server, saver: RedisSaver, raw: redis.Redis
) -> None:
    """Its caller has seen nothing of it, so what it would store would not be what it lived."""
    ids = delta_chain(saver, 6)
    saver.prune(["t"])
    before = raw.hgetall("ckpt:{t}:checkpoints")
    with pytest.raises(CheckpointerError, match="is not there any more"):
        put(saver, "9", parent=ids[2], a=1)
    assert raw.hgetall("ckpt:{t}:checkpoints") == before
    put(saver, "9", parent=ids[-1], meta=DELTA, vers={"log": 6})
