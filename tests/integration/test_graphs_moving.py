"""Threads that come from elsewhere: from another saver, from older formats; and clones of a saver."""

from __future__ import annotations

import asyncio
import dataclasses
import operator
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde import _msgpack as strictness
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from tests.integration.graphs import Builder, Play, Telling, difference, thread, twice
from tests.savers import IDS, Facade, cfg, checkpoint, version

if TYPE_CHECKING:
    from tests.conftest import MakeSaver

TASKS = "__pregel_tasks"
CHANNELS = ("log", "branch:to:a")


class Log(TypedDict):
    log: Annotated[list[Any], operator.add]


@dataclasses.dataclass
class Order:
    """A user's own type in the state."""

    number: int


class Shop(TypedDict):
    orders: Annotated[list[Order], operator.add]


def step(name: str) -> Any:
    return lambda state: {"log": [name]}


def approval() -> Builder:
    inner = StateGraph(Log)
    inner.add_sequence([("x", step("x")), ("ask", lambda state: {"log": [interrupt("?"), interrupt("sure?")]})])
    inner.add_edge(START, "x")
    builder = StateGraph(Log)
    builder.add_sequence([("a", step("a")), ("inner", inner.compile()), ("b", step("b"))])
    builder.add_edge(START, "a")
    return builder


def move(source: BaseCheckpointSaver[Any], target: Facade) -> None:
    """Tuple by tuple, as a migration between any two savers does it; the versions of the source stay."""
    for found in sorted(source.list(None), key=lambda t: t.checkpoint["id"]):
        configurable = found.config["configurable"]
        parent = (found.parent_config or {"configurable": {}})["configurable"].get("checkpoint_id")
        config = cfg(configurable["thread_id"], configurable["checkpoint_ns"], parent)
        stored = target.put(config, found.checkpoint, found.metadata, found.checkpoint["channel_versions"])
        by_task: dict[str, list[tuple[str, Any]]] = {}
        for task_id, channel, value in found.pending_writes or []:
            by_task.setdefault(task_id, []).append((channel, value))
        for task_id, writes in by_task.items():
            target.put_writes(stored, writes, task_id)


def test_a_thread_of_another_saver_goes_on(saver: Facade) -> None:
    memory = InMemorySaver()
    there = Play(saver, memory)
    play = Play(saver)
    app = approval()
    there.invoke(there.app(app), {"log": [1]}, thread())
    there.invoke(there.app(app), Command(resume="yes"), thread())
    move(memory, saver)
    telling, other = Telling(), Telling()
    assert difference(telling.tell(play.stored()), other.tell(there.stored())) is None
    for each in (there, play):
        done = each.invoke(each.app(app), Command(resume="sure"), thread())
        assert done["log"] == [1, "a", 1, "a", "x", "yes", "sure", "b"]
        each.invoke(each.app(app), {"log": [2]}, thread())
        each.invoke(each.app(app), Command(resume="no"), thread())
    assert play.state(play.app(app), thread()).values == there.state(there.app(app), thread()).values
    # The versions go on from where the other saver had counted to.
    versions = [
        t.checkpoint["channel_versions"]["log"] for t in play.stored() if "log" in t.checkpoint["channel_versions"]
    ]
    assert isinstance(versions[0], str)
    old = next(s for s in play.history(play.app(app), thread()) if s.next == ("b",))
    assert play.invoke(play.app(app), None, old.config)["log"][-1] == "b"


def _counted(kind: type, current: Any) -> Any:
    if kind is str:
        return f"{int(current or 0) + 1:032}"
    return kind((current or 0) + 1)


@pytest.mark.parametrize("kind", [int, float, str])
def test_versions_of_any_kind_go_on(saver: Facade, kind: type) -> None:
    """Hand-made versions, as of SqliteSaver or of a saver of one's own."""
    play = Play(saver)

    class Counting(InMemorySaver):
        def get_next_version(self, current: Any, channel: None) -> Any:
            return _counted(kind, current)

    counting = Counting()
    app = approval()
    there = Play(saver, counting)
    there.invoke(there.app(app), {"log": [1]}, thread())
    move(counting, saver)
    assert {type(v) for t in play.stored() for v in t.checkpoint["channel_versions"].values()} == {kind}
    play.invoke(play.app(app), Command(resume="yes"), thread())
    assert play.invoke(play.app(app), Command(resume="sure"), thread())["log"][-2:] == ["sure", "b"]


def _old(saver: Facade, v: int, ns: str = "", parent_v: int | None = None) -> None:
    """Two checkpoints of format `v`; three tasks were sent from the first, as the formats before 4 stored it."""
    for i, parent in ((1, None), (2, 1)):
        versions: ChannelVersions = dict.fromkeys(CHANNELS, version(i))
        made = checkpoint(IDS[i], {"log": [i], "branch:to:a": None}, versions)
        made["v"] = v if i == 2 or parent_v is None else parent_v
        config = cfg("t", ns, IDS[parent] if parent else None)
        saver.put(config, made, {"source": "loop", "step": i}, versions)
    for task, path, sends in (("task-b", "~a", [1, 2]), ("task-a", "~b", [3])):
        writes = [(TASKS, Send("worker", n)) for n in sends]
        saver.put_writes(cfg("t", ns, IDS[1]), [("log", ["not a send"]), *writes], task, path)


@pytest.mark.parametrize("v", [1, 2, 3, 4])
@pytest.mark.parametrize("ns", ["", "sub:1"])
def test_pending_sends_of_older_formats(saver: Facade, v: int, ns: str) -> None:
    _old(saver, v, ns)
    sends = [Send("worker", n) for n in (1, 2, 3)]
    by_id, newest = saver.get_tuple(cfg("t", ns, IDS[2])), saver.get_tuple(cfg("t", ns))
    listed, listed_first = saver.list(cfg("t", ns))
    for found in (by_id, newest, listed):
        assert found is not None
        assert found.checkpoint["channel_values"].get(TASKS) == (sends if v < 4 else None)
        assert found.checkpoint["channel_versions"].get(TASKS) == (version(2) if v < 4 else None)
        assert found.checkpoint["channel_values"]["log"] == [2]
        assert found.checkpoint["v"] == v
    # The first has no parent, and so nothing that was sent to it; its writes are its own.
    first = saver.get_tuple(cfg("t", ns, IDS[1]))
    assert first is not None
    assert TASKS not in first.checkpoint["channel_values"]
    assert TASKS not in listed_first.checkpoint["channel_values"]
    assert [w[1] for w in first.pending_writes or []] == ["log", TASKS, TASKS, "log", TASKS]


def test_pending_sends_are_of_the_format_of_the_child(saver: Facade) -> None:
    """A parent of format 4 under a child of format 3, and the other way round: the child's format decides."""
    _old(saver, 3, parent_v=4)
    found = saver.get_tuple(cfg("t"))
    assert found is not None
    assert len(found.checkpoint["channel_values"][TASKS]) == 3
    saver.delete_thread("t")
    _old(saver, 4, parent_v=3)
    found = saver.get_tuple(cfg("t"))
    assert found is not None
    assert TASKS not in found.checkpoint["channel_values"]


@pytest.mark.parametrize("v", [1, 2, 3])
def test_a_thread_of_an_older_format_runs_on(saver: Facade, v: int) -> None:
    """The tasks that had been sent when the old version stopped are run by the new one."""
    _old(saver, v)
    builder = StateGraph(Log)
    builder.add_node("a", step("a"))
    builder.add_node("worker", lambda n: {"log": [f"worker {n}"]})
    builder.add_edge(START, "a")
    play = Play(saver)
    app = play.app(builder)
    assert play.state(app, thread()).next == ("worker", "worker", "worker", "a")
    assert play.invoke(app, None, thread())["log"] == [2, "a", "worker 1", "worker 2", "worker 3"]
    assert play.state(app, thread()).next == ()
    assert play.invoke(app, {"log": ["more"]}, thread())["log"][-2:] == ["more", "a"]


def test_sync_methods_of_either_saver_inside_of_a_run(saver: Facade) -> None:
    """A node asks for the state of its own thread and invokes another graph with the saver, all in plain sync calls."""

    def story(play: Play) -> None:
        other = StateGraph(Log).add_sequence([("x", step("x")), ("y", step("y"))])
        other.add_edge(START, "x")

        def node(state: Log, config: RunnableConfig) -> dict[str, Any]:
            other_app = play.app(other)
            for _ in range(2):
                found = other_app.invoke({"log": ["in"]}, thread("other"))
            steps = [s.metadata["step"] for s in other_app.get_state_history(thread("other")) if s.metadata]
            assert steps == list(range(6, -2, -1))
            fork = other_app.update_state(thread("other"), {"log": ["by hand"]})
            assert other_app.get_state(fork).values["log"][-1] == "by hand"
            return {"log": found["log"]}

        builder = StateGraph(Log)
        builder.add_sequence([("node", node), ("b", step("b"))])
        builder.add_edge(START, "node")
        app = play.app(builder)
        assert play.invoke(app, {"log": []}, thread())["log"] == ["in", "x", "y", "in", "x", "y", "b"]
        play.history(app, thread())

    twice(story, saver, "t", "other")


def test_async_methods_of_either_saver_on_a_loop_of_their_own(saver: Facade) -> None:
    """`ainvoke` with the sync saver works too: its a-methods run in threads."""
    play = Play(saver)
    app = play.app(approval())

    async def both() -> Any:
        await app.ainvoke({"log": [1]}, thread())
        await app.ainvoke(Command(resume=1), thread())
        return await asyncio.gather(app.ainvoke(Command(resume=2), thread()), app.ainvoke({"log": [0]}, thread("o")))

    done, asked = play.wait(both())
    assert done["log"][-2:] == [2, "b"]
    assert "__interrupt__" in asked


def test_an_allowlist_makes_a_clone_on_the_same_connections(saver: Facade) -> None:
    play = Play(saver)
    builder = StateGraph(Shop)
    builder.add_node("buy", lambda state: {"orders": [Order(len(state["orders"]))]})
    builder.add_edge(START, "buy")
    play.invoke(play.app(builder), {"orders": [Order(0)]}, thread())
    clone = saver.with_allowlist([(Order.__module__, Order.__name__)])
    again = Play(clone)
    assert again.invoke(again.app(builder), {"orders": []}, thread())["orders"] == [Order(0), Order(1), Order(2)]
    assert play.state(play.app(builder), thread()).values["orders"][-1] == Order(2)
    assert saver.get_tuple(cfg("t")) == clone.get_tuple(cfg("t"))


def test_strict_graphs_read_their_own_types(make_saver: MakeSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With LANGGRAPH_STRICT_MSGPACK a graph hands its types to the saver, and other types are not built."""
    from langgraph._internal import _serde

    builder = StateGraph(Shop)
    builder.add_node("buy", lambda state: {"orders": [Order(len(state["orders"]))]})
    builder.add_edge(START, "buy")
    monkeypatch.setattr(strictness, "STRICT_MSGPACK_ENABLED", True)
    monkeypatch.setattr(_serde, "STRICT_MSGPACK_ENABLED", True)
    play = Play(make_saver(serde=JsonPlusSerializer()))
    app = play.app(builder)
    play.invoke(app, {"orders": [Order(0)]}, thread())
    assert play.state(app, thread()).values["orders"] == [Order(0), Order(1)]
    plain = play.stored()[-1].checkpoint["channel_values"]["orders"]
    assert plain == [{"number": 0}, {"number": 1}]
