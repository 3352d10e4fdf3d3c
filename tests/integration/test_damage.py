"""Damage of every kind: what is missing or changed is told, or passed over where that was asked for."""

from __future__ import annotations

import logging
import operator
import random
from typing import Annotated, Any

import pytest
import redis
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from redis_ckpt import CheckpointerError, DamagedCheckpointError, RedisSaver
from redis_ckpt._keys import thread_keys
from tests.integration.graphs import Play, thread
from tests.savers import IDS, Facade, MakeSaver, cfg, ids, in_one_colour, put, values
from tests.servers import on_fake

KEYS = thread_keys(b"ckpt", "t")
PARTS = ("checkpoints", "blobs", "writes")
RUBBISH = [
    b"",
    b"1",
    b"x",
    b"1f",
    b"1fmsgpack\x1f\xc1",
    b"1" + b"\x1d" * 5 + b"\xff",
    b"\xff" * 40,
    b"1\x1f\x1f\x1f",
    b"1e!",
]


def seed(saver: Any) -> None:
    """A thread with a list that is stored as deltas, a namespace, and writes."""
    for i in range(4):
        log = [f"a message that is long enough to be worth a delta, number {n}" * 4 for n in range(8 + i)]
        put(
            saver,
            i,
            parent=i - 1 if i else None,
            log=log,
            other=i,
            vers={"log": f"{i:032}.0.{i}123456789012345", "other": f"{i:032}.1"},
        )
        saver.put_writes(cfg("t", "", IDS[i]), [("x", i), ("y", "y")], "task")
    put(saver, 1, ns="sub:1", a=1)


def everything(saver: Any) -> None:
    """All that reads a thread."""
    saver.get_tuple(cfg())
    saver.get_tuple(cfg("t", "sub:1"))
    list(saver.list({"configurable": {"thread_id": "t"}}))
    list(saver.list(cfg(), filter={"source": "loop"}))
    saver.get_delta_channel_history(config=cfg("t", "", IDS[3]), channels=["other", "x"])


def upkeep(saver: Any) -> None:
    saver.stats("t")
    report = saver.sweep(["t"], keep_last=1, dry_run=True)
    assert all(isinstance(error, CheckpointerError) for error in report.failures.values())
    saver.prune(["t"])
    saver.delete_thread("copy")
    saver.copy_thread("t", "copy")


def ours(saver: Any, work: Any) -> Exception | None:
    """The damage that is told; anything foreign fails the test."""
    try:
        work(saver)
    except CheckpointerError as error:
        return error
    return None


@pytest.mark.unaudited("damaged on purpose")
@pytest.mark.parametrize("part", PARTS)
def test_every_field_that_is_deleted_is_told(saver: Facade, make_saver: MakeSaver, raw: redis.Redis, part: str) -> None:
    seed(saver)
    key = getattr(KEYS, part)
    for field in raw.hkeys(key):
        value = raw.hget(key, field)
        raw.hdel(key, field)
        error = ours(make_saver(), everything)
        if b"\x1f" in field:  # not one of the fields that only upkeep looks at
            assert isinstance(error, DamagedCheckpointError), field
            assert error.thread_id == "t"
        raw.hset(key, field, value)
    assert ours(make_saver(), everything) is None


@pytest.mark.unaudited("damaged on purpose")
@pytest.mark.parametrize("part", [*PARTS, "order", "pending"])
def test_a_key_that_is_gone_or_of_another_type_is_told(
    saver: Facade, make_saver: MakeSaver, raw: redis.Redis, part: str
) -> None:
    key = getattr(KEYS, part)
    for is_gone in (True, False):
        for work in (everything, upkeep):
            raw.delete(*KEYS)
            seed(make_saver())
            raw.delete(key)
            if not is_gone:
                raw.set(key, "of another type")
            error = ours(make_saver(), work)
            assert isinstance(error, DamagedCheckpointError) or (is_gone and work is upkeep), error
    ours(make_saver(), lambda fresh: put(fresh, 5, parent=3, log=["x"]))
    ours(make_saver(), lambda fresh: fresh.put_writes(cfg("t", "", IDS[3]), [("x", 1)], "other"))


@in_one_colour
@on_fake
@pytest.mark.unaudited("damaged on purpose")
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.timeout(300)
def test_whatever_stands_in_a_field_nothing_foreign_is_raised(
    saver: Facade, make_saver: MakeSaver, raw: redis.Redis, part: str
) -> None:
    seed(saver)
    key, dice = getattr(KEYS, part), random.Random(f"damage of {part}")
    for field in raw.hkeys(key):
        value: Any = raw.hget(key, field)
        if value is None:  # a prune has taken it
            continue
        others = [raw.hget(key, other) for other in raw.hkeys(key) if other != field][:2]
        changed = [_flipped(value, dice) for _ in range(12)]
        for damaged in (*RUBBISH, value[: len(value) // 2], value[:-1], *others, *changed):
            raw.hset(key, field, damaged)
            fresh = make_saver()
            ours(fresh, everything)
            ours(fresh, upkeep if dice.random() < 0.2 else everything)
            if not raw.exists(key):  # a prune went through
                seed(make_saver())
        raw.hset(key, field, value)


def _flipped(value: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(value))
    return value[:at] + bytes([value[at] ^ (1 << dice.randrange(8))]) + value[at + 1 :]


@pytest.mark.unaudited("damaged on purpose")
def test_a_delta_that_was_changed_anywhere_is_told_and_not_read_as_something_else(
    saver: Facade, raw: redis.Redis
) -> None:
    seed(saver)
    whole = [values(t)["log"] for t in saver.list(cfg())]
    blobs: list[Any] = raw.hkeys(KEYS.blobs)
    (field, *_) = [f for f in blobs if f.startswith(b"\x1d")]
    record: Any = raw.hget(KEYS.blobs, field)
    reader = RedisSaver(redis_client=raw, cache_bytes=0)
    for at in range(0, len(record), 7):
        raw.hset(KEYS.blobs, field, record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :])
        for i in range(3, -1, -1):
            try:
                found = reader.get_tuple(cfg("t", "", IDS[i]))
            except CheckpointerError:
                continue
            assert values(found)["log"] == whole[3 - i]


def _damage(raw: redis.Redis, i: int) -> None:
    fields: list[Any] = raw.hkeys(KEYS.blobs)
    for field in fields:
        if field.endswith(f"other\x1f={i:032}.1".encode()):
            raw.hset(KEYS.blobs, field, b"1fmsgpack\x1f\xc1")


@pytest.mark.unaudited("damaged on purpose")
def test_the_previous_whole_one_is_read_where_that_is_asked_for(
    saver: Facade, make_saver: MakeSaver, raw: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    seed(saver)
    for i in (3, 2):
        _damage(raw, i)
    caplog.set_level(logging.WARNING, "redis_ckpt")
    with pytest.raises(DamagedCheckpointError, match="'other'") as caught:
        make_saver().get_tuple(cfg())
    assert caught.value.channels == ("other",)
    assert caught.value.__cause__ is not None
    assert caplog.messages == []
    lenient = make_saver(on_damage="previous", on_conflict="raise")
    for _ in range(2):
        found = lenient.get_tuple(cfg())
        assert values(found)["other"] == 1
    assert [IDS[i] in message for i, message in zip((3, 2), caplog.messages, strict=True)] == [True, True]
    assert ids(lenient.list(cfg())) == [IDS[1], IDS[0]]
    assert ids(lenient.list(cfg(), limit=1)) == [IDS[1]]
    assert ids(lenient.list(cfg(), filter={"source": "loop"}, limit=2)) == [IDS[1], IDS[0]]
    with pytest.raises(DamagedCheckpointError):
        lenient.get_tuple(cfg("t", "", IDS[3]))
    assert found is not None
    assert found.config["configurable"]["checkpoint_id"] == IDS[1]
    put(lenient, 4, parent=found.config["configurable"]["checkpoint_id"], other=4)  # no conflict: it knows the newest
    assert values(make_saver().get_tuple(cfg())) == {"other": 4}


@pytest.mark.unaudited("damaged on purpose")
def test_if_none_is_whole_the_newest_is_told(saver: Facade, make_saver: MakeSaver, raw: redis.Redis) -> None:
    seed(saver)
    for i in range(4):
        _damage(raw, i)
    with pytest.raises(DamagedCheckpointError, match=IDS[3]):
        make_saver(on_damage="previous").get_tuple(cfg())
    assert make_saver(on_damage="previous").get_tuple(cfg("nobody")) is None


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


@pytest.mark.unaudited("damaged on purpose")
def test_a_graph_goes_on_from_the_previous_one(make_saver: MakeSaver, raw: redis.Redis) -> None:
    builder = StateGraph(Log)
    builder.add_node("n", lambda state: {"log": ["n"]})
    builder.add_edge(START, "n")
    play = Play(make_saver(on_damage="previous", on_conflict="raise", cache_bytes=0))
    app = play.app(builder)
    play.invoke(app, {"log": ["1"]}, thread())
    play.invoke(app, {"log": ["2"]}, thread())
    newest = play.state(app, thread()).config["configurable"]["checkpoint_id"]
    raw.hset(KEYS.checkpoints, f"\x1f{newest}", b"1rubbish")
    assert play.invoke(app, {"log": ["3"]}, thread())["log"][:3] == ["1", "n", "2"]


@pytest.mark.parametrize("word", ["Previous", None, True, "skip"])
def test_a_word_that_is_none_is_refused(word: Any) -> None:
    with pytest.raises(ValueError, match="on_damage must be one of 'raise', 'previous'"):
        RedisSaver("redis://nowhere", on_damage=word)


@pytest.mark.unaudited("damaged on purpose")
def test_a_thread_that_cannot_be_listed_is_named(saver: Facade, raw: redis.Redis) -> None:
    put(saver, 1, t="whole", a=1)
    for damage in ({"checkpoints": "of another type"}, {"order": b"\x1f\x80a"}):
        seed(saver)
        for part, value in damage.items():
            key = getattr(KEYS, part)
            raw.delete(key)
            if part == "order":
                members: dict[Any, float] = {value: 0}
                raw.zadd(key, members)
            else:
                raw.set(key, value)
        with pytest.raises(DamagedCheckpointError, match="thread 't'"):
            saver.threads()
        raw.delete(*KEYS)
    assert [info.thread_id for info in saver.threads()] == ["whole"]


@pytest.mark.unaudited("damaged on purpose")
@pytest.mark.parametrize("rubbish", ["of another type", {b"\xff\xfe"}])
def test_a_run_whose_threads_are_not_noted_any_more_is_removed_all_the_same(
    saver: Facade, raw: redis.Redis, rubbish: Any
) -> None:
    put(saver, 1, a=1, meta={"run_id": "r"})
    put(saver, 2, parent=1, a=2, meta={"run_id": "other"})
    raw.delete("ckpt:run:{r}")
    raw.set("ckpt:run:{r}", rubbish) if isinstance(rubbish, str) else raw.sadd("ckpt:run:{r}", *rubbish)
    saver.delete_for_runs(["r"])
    assert ids(saver.list(cfg())) == [IDS[2]]
