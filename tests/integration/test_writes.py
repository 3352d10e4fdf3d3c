"""Pending writes: first one wins, order by path, no cap, and what the special channels do."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED

from tests.savers import IDS, Facade, MakeSaver, cfg, put, values, writes
from tests.servers import on_real_servers

HEAD = cfg("t", "", IDS[1])


def test_a_retry_after_a_restart_keeps_the_first_value_and_adds_what_is_new(make_saver: MakeSaver) -> None:
    first, second = make_saver(), make_saver()
    put(first, 1, a=1)
    first.put_writes(HEAD, [("x", "first")], "k")
    second.put_writes(HEAD, [("x", "second"), ("y", 2)], "k")
    for s in (first, second):
        assert writes(s.get_tuple(cfg())) == [("k", "x", "first"), ("k", "y", 2)]


def test_the_first_write_of_a_task_and_index_stands(saver: Facade) -> None:
    put(saver, 1, a=1)
    saver.put_writes(HEAD, [("x", 1), ("y", 2)], "k")
    saver.put_writes(HEAD, [("z", 3)], "k")
    assert writes(saver.get_tuple(HEAD)) == [("k", "x", 1), ("k", "y", 2)]


@pytest.mark.parametrize("channel", [ERROR, INTERRUPT, RESUME, SCHEDULED])
def test_the_last_write_to_a_special_channel_stands(saver: Facade, channel: str) -> None:
    put(saver, 1, a=1)
    saver.put_writes(HEAD, [(channel, "old"), ("x", 1)], "k")
    saver.put_writes(HEAD, [(channel, "new")], "k")
    assert sorted(writes(saver.get_tuple(HEAD))) == sorted([("k", channel, "new"), ("k", "x", 1)])


def test_special_channels_never_meet_ordinary_ones(saver: Facade) -> None:
    put(saver, 1, a=1)
    every = [*((channel, channel.upper()) for channel in WRITES_IDX_MAP), ("x", 4), ("y", 5)]
    saver.put_writes(HEAD, every, "k")
    assert sorted(writes(saver.get_tuple(HEAD))) == sorted(("k", c, v) for c, v in every)


def _by_path(s: Facade | BaseCheckpointSaver[Any]) -> None:
    put(s, 1, a=1)
    s.put_writes(HEAD, [("x", "second")], "aaa", task_path="~b")
    s.put_writes(HEAD, [("x", "first")], "zzz", task_path="~a")


@pytest.mark.parametrize("protocol", [2, 3])
def test_writes_are_ordered_by_path_before_task(saver: Facade) -> None:
    _by_path(saver)
    (listed,) = saver.list(cfg())
    for found in (saver.get_tuple(cfg()), saver.get_tuple(HEAD), listed):
        assert [value for _, _, value in writes(found)] == ["first", "second"]


def test_writes_are_ordered_as_in_memory(saver: Facade) -> None:
    oracle = InMemorySaver()
    for s in (saver, oracle):
        _by_path(s)
        s.put_writes(HEAD, [("x", n) for n in range(12)], "mmm", task_path="~a")
        s.put_writes(HEAD, [("x", "no path")], "later")
        s.put_writes(HEAD, [(ERROR, "e"), ("x", 1)], "mmm", task_path="~a, é")
    assert writes(saver.get_tuple(cfg())) == writes(oracle.get_tuple(cfg()))


def test_the_tenth_write_of_a_task_comes_after_the_ninth(saver: Facade) -> None:
    put(saver, 1, a=1)
    saver.put_writes(HEAD, [("x", n) for n in range(12)], "k")
    (listed,) = saver.list(cfg())
    for found in (saver.get_tuple(cfg()), listed):
        assert [value for _, _, value in writes(found)] == list(range(12))


def test_writes_may_come_before_their_checkpoint(saver: Facade) -> None:
    saver.put_writes(HEAD, [("x", 1)], "k")
    assert saver.get_tuple(cfg()) is None
    assert saver.list(cfg()) == []
    put(saver, 1, a=1)
    assert writes(saver.get_tuple(cfg())) == [("k", "x", 1)]


def test_a_second_put_of_a_checkpoint_keeps_its_writes(saver: Facade) -> None:
    put(saver, 1, a=1)
    saver.put_writes(HEAD, [("x", 1)], "k")
    put(saver, 1, a=2)
    found = saver.get_tuple(cfg())
    assert values(found) == {"a": 2}
    assert writes(found) == [("k", "x", 1)]


def test_no_writes_store_nothing(saver: Facade, raw: redis.Redis) -> None:
    saver.put_writes(HEAD, [], "k")
    assert list(raw.scan_iter()) == []


def test_writes_of_other_checkpoints_and_namespaces_stay_apart(saver: Facade) -> None:
    for i, ns in ((1, ""), (2, ""), (1, "sub:1")):
        put(saver, i, ns=ns, a=1)
        saver.put_writes(cfg("t", ns, IDS[i]), [("x", [i, ns])], "k")
    for i, ns in ((1, ""), (2, ""), (1, "sub:1")):
        assert writes(saver.get_tuple(cfg("t", ns, IDS[i]))) == [("k", "x", [i, ns])]


def test_five_thousand_writes_of_one_task_come_back(saver: Facade) -> None:
    """More names in one call than Lua's `unpack` can take at once."""
    put(saver, 1, a=1)
    saver.put_writes(HEAD, [("x", n) for n in range(5000)], "k")
    (listed,) = saver.list(cfg())
    for found in (saver.get_tuple(cfg()), listed):
        assert [value for _, _, value in writes(found)] == list(range(5000))


@on_real_servers
def test_three_thousand_writes_of_many_tasks_come_back(saver: Facade) -> None:
    put(saver, 1, a=1)
    for task in range(100):
        saver.put_writes(HEAD, [("x", [task, n]) for n in range(30)], f"task-{task:03}", f"~{task:03}")
    expected = [[task, n] for task in range(100) for n in range(30)]
    assert [value for _, _, value in writes(saver.get_tuple(cfg()))] == expected


def test_an_empty_checkpoint_id_cannot_hold_writes(saver: Facade, raw: redis.Redis) -> None:
    put(saver, 1, a=1)
    before = sorted(raw.scan_iter())
    empty: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": ""}}
    for config in (cfg(), empty):
        with pytest.raises(ValueError, match="checkpoint_id"):
            saver.put_writes(config, [("x", 1)], "k")
    assert sorted(raw.scan_iter()) == before
