"""Subgraphs: with the memory of the parent, with a memory of their own, nested, and asked for from outside."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, StateSnapshot, interrupt
from typing_extensions import TypedDict

from tests.integration.graphs import DURABILITIES, App, Builder, Durability, Play, inside, thread, twice
from tests.savers import Facade


class Log(TypedDict):
    log: Annotated[list[Any], operator.add]


class Counted(TypedDict):
    log: Annotated[list[Any], operator.add]
    count: Annotated[int, operator.add]


def chain(state: Any, **nodes: Any) -> Builder:
    builder = StateGraph(state)
    builder.add_sequence(list(nodes.items()))
    builder.add_edge(START, next(iter(nodes)))
    return builder


def says(word: str) -> Any:
    return lambda state: {"log": [word]}


def asks(state: Log) -> Log:
    return {"log": [interrupt(f"after {len(state['log'])}")]}


def nested(memory: bool | None = None, inner_memory: bool | None = None) -> Builder:
    """outer > middle > inner, which asks."""
    inner = chain(Log, first=says("inner"), ask=asks).compile(checkpointer=inner_memory)
    middle = chain(Log, enter=says("middle"), inner=inner).compile(checkpointer=memory)
    return chain(Log, begin=says("outer"), middle=middle, end=says("end"))


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("memory", [None, True])
def test_nested_two_deep_waits_and_goes_on(saver: Facade, memory: bool | None, durability: Durability) -> None:
    def story(play: Play) -> None:
        app = play.app(nested(memory, memory))
        asked = play.invoke(app, {"log": []}, thread(), durability=durability)
        assert len(asked["__interrupt__"]) == 1
        assert inside(inside(play.state(app, thread(), subgraphs=True))).next == ("ask",)
        done = play.invoke(app, Command(resume="yes"), thread(), durability=durability)
        assert done["log"][-2:] == ["yes", "end"]
        assert play.state(app, thread()).next == ()
        play.history(app, thread())
        namespaces = {t.config["configurable"]["checkpoint_ns"] for t in play.stored()}
        assert len(namespaces) == 3
        assert ("middle" in namespaces) is bool(memory)

    twice(story, saver)


def test_subgraph_with_its_own_memory_counts_over_runs(saver: Facade) -> None:
    def story(play: Play) -> None:
        counter = chain(Counted, count=lambda state: {"count": 1, "log": [state["count"]]}).compile(checkpointer=True)
        app = play.app(chain(Log, counter=counter))
        for _ in range(3):
            found = play.invoke(app, {"log": []}, thread())
        assert found["log"][-1] == 2
        inside = play.state(app, thread(checkpoint_ns="counter"))
        assert inside.values["count"] == 3
        assert play.history(app, thread(checkpoint_ns="counter"))[0].values["count"] == 3

    twice(story, saver)


def test_subgraph_without_memory_begins_anew(saver: Facade) -> None:
    def story(play: Play) -> None:
        counter = chain(Counted, count=lambda state: {"count": 1, "log": [state["count"]]}).compile()
        app = play.app(chain(Log, counter=counter))
        for _ in range(2):
            found = play.invoke(app, {"log": []}, thread())
        assert set(found["log"]) == {0}
        namespaces = {t.config["configurable"]["checkpoint_ns"] for t in play.stored()}
        assert sum(ns.startswith("counter:") for ns in namespaces) == 2

    twice(story, saver)


def test_state_of_a_subgraph_is_corrected_from_outside(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = play.app(nested())
        play.invoke(app, {"log": []}, thread())
        inner = inside(inside(play.state(app, thread(), subgraphs=True)))
        play.update(app, inner.config, {"log": ["from outside"]})
        play.history(app, inner.config)
        asked = play.invoke(app, None, thread())
        assert asked["__interrupt__"][0].value == "after 4"
        done = play.invoke(app, Command(resume="yes"), thread())
        assert "from outside" in done["log"]
        play.history(app, thread())

    twice(story, saver)


def test_time_travel_into_a_subgraph(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = play.app(nested())
        play.invoke(app, {"log": []}, thread())
        play.invoke(app, Command(resume="one"), thread())
        (asking,) = [s for s in play.history(app, thread()) if s.next == ("middle",)]
        again = play.invoke(app, None, asking.config)
        assert [i.value for i in again["__interrupt__"]] == ["after 3"]
        assert play.invoke(app, Command(resume="two"), thread())["log"][-2:] == ["two", "end"]
        (task,) = asking.tasks
        assert isinstance(task.state, dict)
        play.history(app, task.state)
        play.history(app, thread())

    twice(story, saver)


def test_travel_to_a_checkpoint_inside_of_a_subgraph(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = play.app(nested())
        play.invoke(app, {"log": []}, thread())
        ns = inside(play.state(app, thread(), subgraphs=True)).config["configurable"]["checkpoint_ns"]
        (within,) = [s for s in play.history(app, thread(checkpoint_ns=ns)) if s.next == ("enter",)]
        again = play.invoke(app, None, within.config)
        assert [i.value for i in again["__interrupt__"]] == ["after 3"]
        play.invoke(app, Command(resume="yes"), thread())
        play.history(app, thread())

    twice(story, saver)


def test_subgraph_called_by_a_node(saver: Facade) -> None:
    """A node that invokes a graph itself; under the async saver this is the sync bridge from a worker thread."""
    inner = chain(Log, first=says("inner"), ask=asks).compile()

    def calls(state: Log, config: RunnableConfig) -> Log:
        found = inner.invoke({"log": ["in"]}, config)
        return {"log": found["log"]}

    def story(play: Play) -> None:
        app = play.app(chain(Log, begin=says("begin"), calls=calls, end=says("end")))
        asked = play.invoke(app, {"log": []}, thread())
        assert [i.value for i in asked["__interrupt__"]] == ["after 2"]
        done = play.invoke(app, Command(resume="ok"), thread())
        assert done["log"] == ["begin", "in", "inner", "ok", "end"]
        play.history(app, thread())

    twice(story, saver)


def _fan_of_subgraphs() -> Builder:
    inner = chain(Log, first=says("inner"), ask=asks).compile()
    builder = StateGraph(Log)
    builder.add_node("inner", inner)
    builder.add_conditional_edges(START, lambda state: [Send("inner", {"log": [n]}) for n in (1, 2, 3)], ["inner"])
    return builder


def test_one_subgraph_sent_three_times_asks_three_times(saver: Facade) -> None:
    """The three run side by side, so their own checkpoints are compared by what the graph answers, not one by one."""

    def result(app: App, play: Play) -> list[Any]:
        config: RunnableConfig = {**thread("fan"), "max_concurrency": 1}
        play.invoke(app, {"log": []}, config)
        asked = play.state(app, thread("fan"), subgraphs=True)
        states = [task.state for task in asked.tasks if isinstance(task.state, StateSnapshot)]
        assert [state.values["log"] for state in states] == [[n, "inner"] for n in (1, 2, 3)]
        answers = {i.id: f"to {n}" for n, i in enumerate(asked.interrupts)}
        return list(play.invoke(app, Command(resume=answers), config)["log"])

    def story(play: Play) -> None:
        log = result(play.app(_fan_of_subgraphs()), play)
        assert log == [1, "inner", "to 0", 2, "inner", "to 1", 3, "inner", "to 2"]

    twice(story, saver, "fan")


def test_failing_subgraph_goes_on_where_it_broke(saver: Facade) -> None:
    def story(play: Play) -> None:
        broken = {"now": True}
        runs: list[str] = []

        def breaks(state: Log) -> Log:
            runs.append("breaks")
            if broken["now"]:
                raise RuntimeError("broken inside")
            return {"log": ["mended"]}

        def first(state: Log) -> Log:
            runs.append("first")
            return {"log": ["first"]}

        inner = chain(Log, first=first, breaks=breaks).compile()
        app = play.app(chain(Log, begin=says("begin"), inner=inner))
        play.fails(app, {"log": []}, thread())
        play.state(app, thread(), subgraphs=True)
        broken["now"] = False
        assert play.invoke(app, None, thread())["log"][-2:] == ["first", "mended"]
        assert runs == ["first", "breaks", "breaks"]
        play.history(app, thread())

    twice(story, saver)
