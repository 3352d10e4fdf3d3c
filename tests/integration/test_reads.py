"""What `get_tuple` and `list` answer: the latest, filters, limits, `before`, namespaces, pages."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import redis
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver

from tests.savers import IDS, Facade, Saver, cfg, checkpoint, ids, put, steps, values, version, writes
from tests.servers import Server

ALL_NAMESPACES: RunnableConfig = {"configurable": {"thread_id": "t"}}


def _filterable(s: Saver) -> None:
    for i, flag in enumerate([True, "true", 1, None], 1):
        put(s, i, meta={"f": flag, "user": "u1"}, a=i)
    put(s, 5, ns="sub:1", meta={"user": "u2"}, a=5)


@pytest.mark.parametrize("protocol", [2, 3])
def test_list_obeys_limits_namespaces_and_filters(saver: Facade) -> None:
    _filterable(saver)

    def q(**kwargs: Any) -> list[int]:
        return steps(saver.list(cfg(), **kwargs))

    assert q(limit=0) == []
    assert q() == [4, 3, 2, 1]
    assert q(limit=2) == [4, 3]
    assert q(filter={"user": "u1"}, limit=2) == [4, 3]
    assert q(filter={"f": "true"}) == [2]
    assert q(filter={"nope": 1}) == []
    assert q(filter={"f": None}) == [4]
    assert q(filter={"f": "true", "user": "u2"}) == []
    assert q(filter={}) == [4, 3, 2, 1]
    assert steps(saver.list(ALL_NAMESPACES)) == [5, 4, 3, 2, 1]
    assert steps(saver.list(cfg("t", "sub:1"))) == [5]


def test_a_filter_keeps_true_and_one_apart(saver: Facade) -> None:
    _filterable(saver)
    put(saver, 6, meta={"f": {"deep": [True]}}, a=6)
    put(saver, 7, meta={"f": {"deep": [1]}}, a=7)
    assert steps(saver.list(cfg(), filter={"f": True})) == [1]
    assert steps(saver.list(cfg(), filter={"f": 1})) == [3]
    assert steps(saver.list(cfg(), filter={"f": {"deep": [True]}})) == [6]
    assert steps(saver.list(cfg(), filter={"f": {"deep": [1]}})) == [7]


def test_a_filter_counts_before_the_limit(saver: Facade) -> None:
    for n in range(60):
        put(saver, f"{n:04}", meta={"step": n, "even": n % 2 == 0, "nested": {"list": [n % 3]}}, a=n)
    assert steps(saver.list(cfg(), filter={"even": True}, limit=3)) == [58, 56, 54]
    assert steps(saver.list(cfg(), filter={"step": 0}, limit=1)) == [0]
    assert steps(saver.list(cfg(), filter={"nested": {"list": [2]}}, limit=2)) == [59, 56]


@pytest.mark.parametrize("ns", ["", "sub:1", "none"])
def test_pages_and_bounds_agree_with_memory(saver: Facade, ns: str) -> None:
    oracle = InMemorySaver()
    for s in (saver, oracle):
        for i in range(6):
            put(s, i, ns="sub:1" if i % 3 == 2 else "", parent=i - 1 if i else None, a=i)
    for bound, limit in itertools.product([None, IDS[3], IDS[3][:-1] + "6", "0", "zzz"], [None, 0, 1, 3]):
        before = None if bound is None else cfg("t", ns, bound)
        found = saver.list(cfg("t", ns), before=before, limit=limit)
        assert found == list(oracle.list(cfg("t", ns), before=before, limit=limit)), (bound, limit)


def test_before_is_exclusive_over_all_namespaces(saver: Facade) -> None:
    for i in range(6):
        put(saver, i, ns=("", "sub:1", "z")[i % 3], a=i)
    assert steps(saver.list(ALL_NAMESPACES)) == [5, 4, 3, 2, 1, 0]
    assert steps(saver.list(ALL_NAMESPACES, before=cfg("t", "", IDS[4]))) == [3, 2, 1, 0]
    assert steps(saver.list(ALL_NAMESPACES, before=cfg("t", "", IDS[4]), limit=2)) == [3, 2]


def test_no_config_lists_every_thread_newest_first(saver: Facade) -> None:
    for i in range(8):
        put(saver, i, t=f"t{i % 3}", ns="" if i % 2 else "sub", meta={"odd": i % 2}, a=i)
    assert steps(saver.list(None)) == [7, 6, 5, 4, 3, 2, 1, 0]
    assert steps(saver.list(None, limit=3)) == [7, 6, 5]
    assert steps(saver.list(None, filter={"odd": 0}, limit=2)) == [6, 4]
    assert steps(saver.list(None, before=cfg("t0", "", IDS[3]))) == [2, 1, 0]
    assert {item.config["configurable"]["thread_id"] for item in saver.list(None)} == {"t0", "t1", "t2"}


def test_a_config_with_an_id_lists_that_one(saver: Facade) -> None:
    for i in range(4):
        put(saver, i, a=i)
        put(saver, i, ns="sub", a=i)
    assert steps(saver.list(cfg("t", "", IDS[2]))) == [2]
    assert steps(saver.list(cfg("t", "", IDS[9]))) == []
    every = {"thread_id": "t", "checkpoint_id": IDS[2]}
    found = saver.list({"configurable": every})
    assert {item.config["configurable"]["checkpoint_ns"] for item in found} == {"", "sub"}
    assert steps(found) == [2, 2]


def test_tuples_say_where_they_come_from(saver: Facade) -> None:
    put(saver, 1, ns="sub:1", a=1)
    put(saver, 2, ns="sub:1", parent=1, a=2)
    (second, first) = saver.list(cfg("t", "sub:1"))
    for found in (saver.get_tuple(cfg("t", "sub:1")), saver.get_tuple(cfg("t", "sub:1", IDS[2])), second):
        assert isinstance(found, CheckpointTuple)
        assert found.config == cfg("t", "sub:1", IDS[2])
        assert found.parent_config == cfg("t", "sub:1", IDS[1])
    assert first.parent_config is None


def test_absent_is_none(saver: Facade) -> None:
    assert saver.get_tuple(cfg("nobody")) is None
    assert saver.get(cfg("nobody")) is None
    put(saver, 1, a=1)
    assert saver.get_tuple(cfg("t", "other")) is None
    assert saver.get_tuple(cfg("t", "", IDS[2])) is None
    assert saver.list(cfg("nobody")) == []


def test_get_answers_the_checkpoint_alone(saver: Facade) -> None:
    put(saver, 1, a=1)
    assert saver.get(cfg()) == checkpoint(IDS[1], {"a": 1}, {"a": version(1)})


def test_an_empty_checkpoint_id_means_the_latest(saver: Facade) -> None:
    for i in (1, 2):
        put(saver, i, a=i)
    empty: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": ""}}
    assert values(saver.get_tuple(empty)) == {"a": 2}
    assert steps(saver.list(empty)) == [2, 1]


def test_a_config_without_namespace_reads_the_root(saver: Facade) -> None:
    put(saver, 1, a="root")
    put(saver, 2, ns="sub", a="sub")
    assert values(saver.get_tuple(ALL_NAMESPACES)) == {"a": "root"}


def test_the_greatest_id_is_the_latest_whenever_it_was_put(saver: Facade) -> None:
    for i in (2, 3, 1):
        put(saver, i, a=i)
    assert values(saver.get_tuple(cfg())) == {"a": 3}
    assert steps(saver.list(cfg())) == [3, 2, 1]


def test_a_second_put_of_an_id_replaces_the_first(saver: Facade, raw: redis.Redis) -> None:
    put(saver, 1, meta={"try": 1}, a="old", gone="x")
    put(saver, 1, meta={"try": 2}, a="new", vers={"a": version(2)})
    found = saver.get_tuple(cfg())
    assert found is not None
    assert values(found) == {"a": "new"}
    assert found.metadata["try"] == 2  # type: ignore[typeddict-item]
    assert len(saver.list(cfg())) == 1
    saver.prune(["t"])
    assert values(saver.get_tuple(cfg())) == {"a": "new"}
    assert raw.hlen("ckpt:{t}:blobs") == 1


def test_a_checkpoint_that_is_its_own_parent_ends_every_walk(saver: Facade) -> None:
    put(saver, 1, parent=1, a=1)
    put(saver, 3, parent=2, b=3, vers={"b": 3, "never": 1})
    put(saver, 2, parent=3, b=2)
    for i in (1, 2, 3):
        saver.put_writes(cfg("t", "", IDS[i]), [("never", i)], "k")
        config = cfg("t", "", IDS[i])
        history = saver.get_delta_channel_history(config=config, channels=["never", "b"])
        assert set(history) == {"never", "b"}
    assert steps(saver.list(cfg())) == [3, 2, 1]
    saver.copy_thread("t", "t2")
    assert steps(saver.list(cfg("t2"))) == [3, 2, 1]
    saver.prune(["t"])
    assert values(saver.get_tuple(cfg())) == {"b": 3}
    saver.delete_thread("t")
    assert saver.get_tuple(cfg()) is None


def test_every_checkpoint_of_a_long_thread_is_listed(saver: Facade, server: Server) -> None:
    count = 2000 if server.real else 300
    for n in range(count):
        put(saver, f"{n:06}", ns="" if n % 4 else "sub", a=n, vers={"a": n + 1}, parent=f"{n - 1:06}")
        if n % 100 == 0:
            saver.put_writes(cfg("t", "" if n % 4 else "sub", f"{n:06}"), [("x", n)], "k")
    newest_first = [f"{n:06}" for n in range(count - 1, -1, -1)]
    every = saver.list(ALL_NAMESPACES)
    assert ids(every) == newest_first
    assert [values(item)["a"] for item in every] == list(range(count - 1, -1, -1))
    assert [writes(item)[0][2] for item in every if item.pending_writes] == list(range(count - 100, -1, -100))
    assert ids(saver.list(cfg())) == [name for name in newest_first if int(name) % 4]
    assert ids(saver.list(None, limit=150)) == newest_first[:150]


def test_the_first_item_costs_one_page(saver: Facade) -> None:
    for n in range(120):
        put(saver, f"{n:06}", a=n, vers={"a": n + 1})
    if saver.is_async:

        async def first() -> CheckpointTuple:
            items = saver.raw_saver.alist(cfg())
            item: CheckpointTuple = await anext(items)
            await items.aclose()
            return item

        found = saver.loop.run(first())
    else:
        found = next(saver.raw_saver.list(cfg()))
    assert values(found) == {"a": 119}
