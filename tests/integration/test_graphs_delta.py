"""Delta channels: the state is rebuilt from snapshots and writes, whatever happened to the thread in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Overwrite, Send, StateSnapshot, interrupt
from typing_extensions import TypedDict

from tests.integration.graphs import DURABILITIES, App, Builder, Durability, Play, thread, twice
from tests.savers import Facade


def extend(state: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


def merge(state: dict[str, Any], writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {k: v for part in (state, *writes) for k, v in part.items()}


class Log(TypedDict):
    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=3)]
    seen: Annotated[dict[str, Any], DeltaChannel(merge, snapshot_frequency=50)]
    plain: Any


class Short(TypedDict):
    """Every delta channel has a snapshot of late, so there is something to prune."""

    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=3)]
    plain: Any


def step(name: str) -> Any:
    return lambda state: {"log": [name], "seen": {name: len(state["log"])}, "plain": name}


def abc(schema: Any = Log) -> Builder:
    builder = StateGraph(schema)
    builder.add_sequence([(name, step(name)) for name in "abc"])
    builder.add_edge(START, "a")
    return builder


def run(play: Play, app: App, times: int, config: Any = None, **kwargs: Any) -> Any:
    for n in range(times):
        found = play.invoke(app, {"log": [n]}, config or thread(), **kwargs)
    return found


def values(history: list[StateSnapshot]) -> list[Any]:
    return [s.values for s in history]


@pytest.mark.parametrize("durability", DURABILITIES)
def test_every_checkpoint_of_a_long_thread_reads_back(saver: Facade, durability: Durability) -> None:
    def story(play: Play) -> None:
        app = play.app(abc())
        end = run(play, app, 4, durability=durability)
        assert end["log"] == [x for n in range(4) for x in (n, "a", "b", "c")]
        assert end["seen"] == {"a": 13, "b": 14, "c": 15}
        history = play.history(app, thread())
        for snapshot in history:
            assert play.state(app, snapshot.config).values == snapshot.values
        if durability != "exit":
            assert [len(s.values.get("log", [])) for s in history] == [
                n for n in range(16, -1, -1) for _ in (range(2) if n % 4 == 0 and 0 < n < 16 else range(1))
            ]

    twice(story, saver)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_branches_of_a_delta_thread_keep_apart(saver: Facade, durability: Durability) -> None:
    def story(play: Play) -> None:
        app = play.app(abc())
        run(play, app, 3)
        trunk = play.history(app, thread())
        for n in (1, 4, 10):
            old = trunk[n]
            play.invoke(app, None, old.config, durability=durability)
            branch = play.invoke(app, {"log": [f"branch {n}"]}, old.config, durability=durability)
            assert branch["log"] == [*old.values["log"], f"branch {n}", "a", "b", "c"]
        assert values(trunk) == [play.state(app, s.config).values for s in trunk]
        play.history(app, thread())

    twice(story, saver)


def test_updates_and_overwrites(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = play.app(abc())
        play.update(app, thread(), {"log": ["first"]}, "a")
        run(play, app, 2)
        play.update(app, thread(), {"log": ["by hand"]}, "b")
        assert play.state(app, thread()).values["log"][-1] == "by hand"
        play.update(app, thread(), {"log": Overwrite(["anew"])}, "c")
        assert play.state(app, thread()).values["log"] == ["anew"]
        assert run(play, app, 2)["log"] == ["anew", 0, "a", "b", "c", 1, "a", "b", "c"]
        fork = play.update(app, play.history(app, thread())[3].config, {"log": Overwrite(None)}, "a")
        assert play.state(app, fork).values["log"] == []
        assert play.invoke(app, None, fork)["log"] == ["b", "c"]
        play.history(app, thread())

    twice(story, saver)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_node_that_overwrites(saver: Facade, durability: Durability) -> None:
    def story(play: Play) -> None:
        builder = StateGraph(Log)
        builder.add_node("grow", lambda state: {"log": ["grown"]})
        builder.add_node("trim", lambda state: {"log": Overwrite(state["log"][-2:])})
        builder.add_sequence([("last", lambda state: {"log": ["last"]})])
        builder.add_edge(START, "grow")
        builder.add_edge("grow", "trim")
        builder.add_edge("trim", "last")
        app = play.app(builder)
        assert run(play, app, 3, durability=durability)["log"] == [2, "grown", "last"]
        play.history(app, thread())

    twice(story, saver)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_interrupts_between_deltas(saver: Facade, durability: Durability) -> None:
    def story(play: Play) -> None:
        builder = StateGraph(Log)
        builder.add_sequence(
            [
                ("a", step("a")),
                ("ask", lambda state: {"log": [interrupt(len(state["log"])), interrupt("again")]}),
                ("b", step("b")),
            ]
        )
        builder.add_edge(START, "a")
        app = play.app(builder)
        for n in range(3):
            play.invoke(app, {"log": [n]}, thread(), durability=durability)
            assert play.state(app, thread()).next == ("ask",)
            play.invoke(app, Command(resume=f"one {n}"), thread(), durability=durability)
            play.invoke(app, Command(resume=f"two {n}"), thread(), durability=durability)
        assert play.state(app, thread()).values["log"] == [
            x for n in range(3) for x in (n, "a", f"one {n}", f"two {n}", "b")
        ]
        play.history(app, thread())

    twice(story, saver)


def test_parallel_writers_are_replayed_in_the_order_of_the_run(saver: Facade) -> None:
    def story(play: Play) -> None:
        builder = StateGraph(Log)
        builder.add_node("worker", lambda n: {"log": [n]})
        builder.add_node("z", lambda state: {"log": ["z"]})
        builder.add_node("y", lambda state: {"log": ["y"]})
        builder.add_conditional_edges(
            START, lambda state: [*(Send("worker", n) for n in range(12)), "z", "y"], ["worker", "z", "y"]
        )
        app = play.app(builder)
        lived = play.invoke(app, {"log": ["in"]}, thread())["log"]
        assert play.state(app, thread()).values["log"] == lived
        assert sorted(map(str, lived)) == sorted(map(str, ["in", *range(12), "y", "z"]))
        play.history(app, thread())

    twice(story, saver)


@pytest.mark.parametrize("memory", [None, True])
@pytest.mark.parametrize("durability", DURABILITIES)
def test_deltas_of_a_subgraph(saver: Facade, memory: bool | None, durability: Durability) -> None:
    def story(play: Play) -> None:
        inner = StateGraph(Log)
        inner.add_sequence(
            [("x", step("x")), ("ask", lambda state: {"log": [interrupt("?")]}), ("y", step("y")), ("z", step("z"))]
        )
        inner.add_edge(START, "x")
        outer = StateGraph(Log)
        outer.add_sequence([("a", step("a")), ("inner", inner.compile(checkpointer=memory)), ("b", step("b"))])
        outer.add_edge(START, "a")
        app = play.app(outer)
        for n in range(2):
            play.invoke(app, {"log": [n]}, thread(), durability=durability)
            play.state(app, thread(), subgraphs=True)
            end = play.invoke(app, Command(resume=f"answer {n}"), thread(), durability=durability)
            assert end["log"][-4:] == [f"answer {n}", "y", "z", "b"]
        history = play.history(app, thread())
        assert history[0].values == end
        if memory:
            play.history(app, thread(checkpoint_ns="inner"))

    twice(story, saver)


@pytest.mark.parametrize(("schema", "kept"), [(Short, 5), (Log, 20)])
@pytest.mark.parametrize("runs", [1, 2, 3, 4])
def test_pruned_thread_reads_the_same_and_goes_on(saver: Facade, runs: int, schema: Any, kept: int) -> None:
    """What stays reaches back to the last snapshot of each delta channel, for a rare snapshot to the beginning."""
    play = Play(saver)
    app = play.app(abc(schema))
    before = run(play, app, runs)
    saver.prune(["t"])
    assert play.state(app, thread()).values == before
    once = play.stored()
    assert len(once) <= kept
    saver.prune(["t"])
    assert play.stored() == once
    after = play.invoke(app, {"log": ["more"]}, thread())
    assert after["log"] == [*before["log"], "more", "a", "b", "c"]
    assert play.state(app, thread()).values == after
    saver.prune(["t"])
    assert play.state(app, thread()).values == after


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_waiting_delta_thread_can_be_pruned(saver: Facade, durability: Durability) -> None:
    play = Play(saver)
    app = play.app(abc(), interrupt_before=["c"])
    for n in range(4):
        play.invoke(app, {"log": [n]}, thread(), durability=durability)
    waiting = play.state(app, thread())
    saver.prune(["t"])
    assert play.state(app, thread()).values == waiting.values
    assert play.state(app, thread()).next == ("c",)
    assert play.invoke(app, None, thread(), durability=durability)["log"] == [*waiting.values["log"], "c"]


def test_pruned_branches_leave_the_newest(saver: Facade) -> None:
    play = Play(saver)
    app = play.app(abc())
    run(play, app, 3)
    fork = play.update(app, play.history(app, thread())[5].config, {"log": ["fork"]}, "b")
    end = play.invoke(app, None, fork)
    saver.prune(["t"])
    assert play.state(app, thread()).values == end
    assert run(play, app, 1)["log"] == [*end["log"], 0, "a", "b", "c"]


def test_copy_of_a_delta_thread_reads_the_same_and_goes_its_own_way(saver: Facade) -> None:
    play = Play(saver)
    app = play.app(abc())
    run(play, app, 4)
    original = play.history(app, thread())
    saver.copy_thread("t", "copy")
    assert values(play.history(app, thread("copy"))) == values(original)
    play.invoke(app, {"log": ["copy"]}, thread("copy"))
    saver.prune(["copy"])
    assert play.state(app, thread("copy")).values["log"][-4:] == ["copy", "a", "b", "c"]
    assert values(play.history(app, thread())) == values(original)
    saver.delete_thread("t")
    assert run(play, app, 1, thread("copy"))["log"][-4:] == [0, "a", "b", "c"]
