"""Many graphs and many callers on one saver at once: all of them end, nothing is lost, readers see whole states."""

from __future__ import annotations

import asyncio
import itertools
import operator
import threading
from collections import Counter
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from tests.integration.graphs import Builder, Play, thread
from tests.savers import Facade, arguments, cfg, values, writes
from tests.servers import REAL_KINDS, on_real_servers

WRITERS_SYNC, WRITERS_ASYNC = 16, 64
ROUNDS = 6
RUNS = 500

on_one_server = pytest.mark.parametrize("server", REAL_KINDS[:1], indirect=True)


class Log(TypedDict):
    log: Annotated[list[Any], operator.add]


def fan() -> Builder:
    builder = StateGraph(Log)
    builder.add_node("worker", lambda n: {"log": [n]})
    builder.add_node("ask", _ask)
    builder.add_conditional_edges(START, lambda state: [Send("worker", n) for n in range(3)], ["worker"])
    builder.add_edge("worker", "ask")
    return builder


def approval() -> Builder:
    builder = StateGraph(Log)
    builder.add_sequence([("first", lambda state: {"log": ["first"]}), ("ask", _ask)])
    builder.add_edge(START, "first")
    return builder


def _ask(state: Log) -> Log:
    return {"log": [interrupt(len(state["log"]))]}


def name_of(writer: int, number: int) -> str:
    return f"{number:04}-{writer:04}"


def put_arguments(writer: int, number: int) -> Any:
    """A checkpoint of two channels that must always agree, on the root or on one of two namespaces."""
    name = name_of(writer, number)
    return arguments(name, ns=NAMESPACES[writer % 3], vers={"a": name, "b": name}, a=name, b=[name] * 50)


NAMESPACES = ("", "sub:1", "sub:2|deep:3")


def write_arguments(writer: int, number: int) -> Any:
    config = cfg("t", NAMESPACES[writer % 3], name_of(writer, number))
    return config, [("x", writer), ("y", number), ("__resume__", [writer])], f"task-{writer}", f"~{number}"


def check_whole(found: CheckpointTuple) -> None:
    state = values(found)
    assert state == {"a": found.checkpoint["id"], "b": [found.checkpoint["id"]] * 50}
    assert len(writes(found)) in (0, 3)


def check_all(saver: Facade, writers: int) -> None:
    found = saver.list(thread())
    ids = [item.checkpoint["id"] for item in found]
    assert ids == sorted((name_of(w, n) for w in range(writers) for n in range(ROUNDS)), reverse=True)
    for item in found:
        check_whole(item)
        number, writer = map(int, item.checkpoint["id"].split("-"))
        assert sorted(w[1:] for w in writes(item)) == [("__resume__", [writer]), ("x", writer), ("y", number)]


@on_real_servers
@pytest.mark.parametrize("colour", ["sync"], indirect=True)
def test_sixteen_threads_write_to_one_thread_while_another_reads(saver: Facade) -> None:
    done = threading.Event()

    def write(writer: int) -> None:
        for number in range(ROUNDS):
            # Writes may come before their checkpoint: LangGraph does not wait for it.
            if writer % 2:
                saver.put_writes(*write_arguments(writer, number))
            saver.put(*put_arguments(writer, number))
            if not writer % 2:
                saver.put_writes(*write_arguments(writer, number))

    def read() -> int:
        seen = 0
        while not done.is_set():
            for item in saver.list(thread(), limit=20):
                check_whole(item)
                seen += 1
        return seen

    with ThreadPoolExecutor(WRITERS_SYNC + 1) as pool:
        reader = pool.submit(read)
        try:
            list(pool.map(write, range(WRITERS_SYNC)))
        finally:
            done.set()
        assert reader.result() > 0
    check_all(saver, WRITERS_SYNC)


@on_real_servers
@pytest.mark.parametrize("colour", ["async"], indirect=True)
def test_sixty_four_tasks_write_to_one_thread_while_another_reads(saver: Facade) -> None:
    s = saver.raw_saver

    async def write(writer: int) -> None:
        for number in range(ROUNDS):
            both: list[Coroutine[Any, Any, Any]] = [
                s.aput(*put_arguments(writer, number)),
                s.aput_writes(*write_arguments(writer, number)),
            ]
            await asyncio.gather(*both)

    async def read(done: asyncio.Event) -> int:
        seen = 0
        while not done.is_set():
            async for item in s.alist(thread(), limit=20):
                check_whole(item)
                seen += 1
        return seen

    async def both() -> int:
        done = asyncio.Event()
        reader = asyncio.create_task(read(done))
        try:
            await asyncio.gather(*(write(n) for n in range(WRITERS_ASYNC)))
        finally:
            done.set()
        return await reader

    assert saver.loop.run(both()) > 0
    check_all(saver, WRITERS_ASYNC)


class Chat(TypedDict):
    log: Annotated[
        list[Any], DeltaChannel(lambda state, writes: [*state, *itertools.chain(*writes)], snapshot_frequency=3)
    ]
    plain: Annotated[list[Any], operator.add]


def chat() -> Builder:
    """Every turn leaves a subgraph call behind, which a prune takes away."""
    inner = StateGraph(Chat)
    inner.add_sequence([(n, lambda state, n=n: {"log": [n], "plain": [n]}) for n in ("x", "y")])
    inner.add_edge(START, "x")
    builder = StateGraph(Chat)
    builder.add_sequence([("a", lambda state: {"log": ["a"], "plain": ["a"]}), ("inner", _apart(inner.compile()))])
    builder.add_edge(START, "a")
    return builder


def _apart(inner: Any) -> Any:
    """A node that calls a subgraph with a state of its own, so the log grows by what the subgraph adds."""

    def node(state: Chat, config: RunnableConfig) -> Any:
        return inner.invoke({"log": [], "plain": []}, config)

    return node


@on_real_servers
def test_a_thread_is_pruned_again_and_again_while_its_graph_runs(saver: Facade) -> None:
    play = Play(saver)
    app = play.app(chat())
    expected: list[Any] = []
    done, pruned = threading.Event(), Counter[str]()

    def prune() -> None:
        while not done.is_set():
            saver.prune(["t"])
            pruned["times"] += 1

    with ThreadPoolExecutor(1) as pool:
        pruning = pool.submit(prune)
        try:
            for n in range(12):
                found = play.invoke(app, {"log": [n], "plain": [n]}, thread())
                expected += [n, "a", "x", "y"]
                assert found == {"log": expected, "plain": expected}
                assert play.state(app, thread()).values == found
        finally:
            done.set()
        pruning.result()
    assert pruned["times"] > 5
    saver.prune(["t"])
    assert play.state(app, thread()).values == found
    assert len(play.stored()) <= 4


@on_one_server
@pytest.mark.parametrize("colour", ["async"], indirect=True)
def test_five_hundred_graphs_run_at_once(saver: Facade) -> None:
    """Each asks and is answered; a reader looks at their states meanwhile."""
    app = Play(saver).app(approval())

    async def run(n: int) -> None:
        config = thread(f"thread-{n}")
        asked = await app.ainvoke({"log": [f"in {n}"]}, config)
        assert [i.value for i in asked["__interrupt__"]] == [2]
        done = await app.ainvoke(Command(resume=f"answer {n}"), config)
        assert done["log"] == [f"in {n}", "first", f"answer {n}"]

    async def look(done: asyncio.Event) -> int:
        seen = 0
        while not done.is_set():
            n = seen % RUNS
            log = (await app.aget_state(thread(f"thread-{n}"))).values.get("log", [])
            assert log == [f"in {n}", "first", f"answer {n}"][: len(log)]
            seen += 1
        return seen

    async def all_of_them() -> int:
        done = asyncio.Event()
        looking = asyncio.create_task(look(done))
        try:
            await asyncio.gather(*(run(n) for n in range(RUNS)))
        finally:
            done.set()
        return await looking

    assert saver.loop.run(all_of_them(), timeout=100) > 0
    infos = saver.threads()
    assert {info.thread_id for info in infos} == {f"thread-{n}" for n in range(RUNS)}
    assert {info.checkpoints for info in infos} == {4}


@on_one_server
@pytest.mark.parametrize("colour", ["sync"], indirect=True)
def test_forty_graphs_run_in_threads(saver: Facade) -> None:
    app = Play(saver).app(fan())

    def run(n: int) -> Any:
        app.invoke({"log": [n]}, thread(f"thread-{n}"))
        return app.invoke(Command(resume=n), thread(f"thread-{n}"))["log"]

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(run, range(40))) == [[n, 0, 1, 2, n] for n in range(40)]
