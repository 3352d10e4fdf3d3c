"""Threads of real graphs that are pruned, copied or freed of some runs: what stays reads the same, and goes on."""

from __future__ import annotations

import operator
import uuid
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from tests.integration.graphs import DURABILITIES, Builder, Durability, Play, thread
from tests.savers import Facade


class Log(TypedDict):
    log: Annotated[list[Any], operator.add]
    constant: Any
    last: Any


def step(name: str) -> Any:
    return lambda state: {"log": [name], "last": name}


def ask(state: Log) -> dict[str, Any]:
    return {"log": [interrupt("?")]}


def outer() -> Builder:
    """a, then a subgraph that asks, then b."""
    inner = StateGraph(Log)
    inner.add_sequence([("x", step("x")), ("ask", ask)])
    inner.add_edge(START, "x")
    builder = StateGraph(Log)
    builder.add_sequence([("a", step("a")), ("inner", inner.compile()), ("b", step("b"))])
    builder.add_edge(START, "a")
    return builder


def abc() -> Builder:
    builder = StateGraph(Log)
    builder.add_sequence([(name, step(name)) for name in "abc"])
    builder.add_edge(START, "a")
    return builder


def of_run(run: str, thread_id: str = "t") -> RunnableConfig:
    """As a server runs a graph: the run's id names the trace and stands in the metadata."""
    return {**thread(thread_id), "run_id": uuid.UUID(run), "metadata": {"run_id": run}}


def new_run() -> str:
    return str(uuid.uuid4())


@pytest.mark.parametrize("durability", DURABILITIES)
def test_pruned_thread_has_its_newest_state_alone(saver: Facade, durability: Durability) -> None:
    play = Play(saver)
    app = play.app(abc())
    for n in range(3):
        play.invoke(app, {"log": [n], "constant": "never written again"}, thread(), durability=durability)
    before = play.state(app, thread())
    saver.prune(["t"])
    (kept,) = play.history(app, thread())
    assert (kept.values, kept.next, kept.config) == (before.values, before.next, before.config)
    assert kept.values["constant"] == "never written again"
    assert play.history(app, thread(), before=kept.config) == []
    after = play.invoke(app, {"log": ["more"]}, thread(), durability=durability)
    assert after["log"] == [*before.values["log"], "more", "a", "b", "c"]


def test_pruned_while_a_subgraph_waits(saver: Facade) -> None:
    play = Play(saver)
    app = play.app(outer())
    for n in range(2):
        play.invoke(app, {"log": [n]}, thread())
        play.invoke(app, Command(resume=f"answer {n}"), thread())
    play.invoke(app, {"log": [2]}, thread())
    before = play.state(app, thread(), subgraphs=True)
    assert len({t.config["configurable"]["checkpoint_ns"] for t in play.stored()}) == 4
    saver.prune(["t"])
    waiting = play.state(app, thread(), subgraphs=True)
    assert waiting.tasks == before.tasks
    assert [i.value for i in waiting.interrupts] == ["?"]
    # The two calls of the subgraph that had ended went with their root checkpoints.
    assert len({t.config["configurable"]["checkpoint_ns"] for t in play.stored()}) == 2
    done = play.invoke(app, Command(resume="answer 2"), thread())
    assert done["log"][-2:] == ["answer 2", "b"]
    saver.prune(["t"])
    assert [t.config["configurable"]["checkpoint_ns"] for t in play.stored()] == [""]
    assert play.state(app, thread()).values == done


def test_pruning_keeps_the_memory_of_a_subgraph(saver: Facade) -> None:
    play = Play(saver)
    counter = StateGraph(Log)
    counter.add_sequence([("x", step("x")), ("y", step("y"))])
    counter.add_edge(START, "x")
    builder = StateGraph(Log)
    builder.add_sequence([("counter", counter.compile(checkpointer=True)), ("b", step("b"))])
    builder.add_edge(START, "counter")
    app = play.app(builder)
    for n in range(3):
        play.invoke(app, {"log": [n]}, thread())
    inside = play.state(app, thread(checkpoint_ns="counter")).values
    saver.prune(["t"])
    assert play.state(app, thread(checkpoint_ns="counter")).values == inside
    assert sorted(t.config["configurable"]["checkpoint_ns"] for t in play.stored()) == ["", "counter"]
    play.invoke(app, {"log": ["more"]}, thread())
    assert play.state(app, thread(checkpoint_ns="counter")).values["log"][: len(inside["log"])] == inside["log"]


def test_pruned_to_nothing(saver: Facade) -> None:
    play = Play(saver)
    app = play.app(abc())
    play.invoke(app, {"log": ["in"]}, thread())
    saver.prune(["t"], strategy="delete")
    assert play.state(app, thread()).values == {}
    assert play.history(app, thread()) == []
    assert play.invoke(app, {"log": ["anew"]}, thread())["log"] == ["anew", "a", "b", "c"]


def test_the_newest_run_is_taken_back(saver: Facade) -> None:
    play = Play(saver)
    app = play.app(abc())
    first, second = new_run(), new_run()
    kept = play.invoke(app, {"log": [1]}, of_run(first))
    stored = play.stored()
    play.invoke(app, {"log": [2]}, of_run(second))
    saver.delete_for_runs([second])
    assert play.stored() == stored
    assert play.state(app, thread()).values == kept
    assert play.invoke(app, {"log": [3]}, thread())["log"] == [1, "a", "b", "c", 3, "a", "b", "c"]


def test_an_older_run_is_removed_under_a_newer(saver: Facade) -> None:
    play = Play(saver)
    app = play.app(abc())
    first, second = new_run(), new_run()
    play.invoke(app, {"log": [1], "constant": "of the first run"}, of_run(first))
    end = play.invoke(app, {"log": [2]}, of_run(second))
    newer = play.history(app, thread(), filter={"run_id": second})
    saver.delete_for_runs([first])
    assert play.history(app, thread()) == newer
    assert play.state(app, thread()).values == end
    assert end["constant"] == "of the first run"
    assert play.invoke(app, {"log": [3]}, thread())["log"] == [*end["log"], 3, "a", "b", "c"]


def test_runs_over_several_threads(saver: Facade) -> None:
    play = Play(saver)
    app = play.app(abc())
    shared, other = new_run(), new_run()
    for name in ("a", "b", "c"):
        play.invoke(app, {"log": [name]}, of_run(shared, name))
    kept = play.invoke(app, {"log": ["again"]}, of_run(other, "b"))
    saver.delete_for_runs([shared, new_run()])
    assert play.history(app, thread("a")) == play.history(app, thread("c")) == []
    assert play.state(app, thread("b")).values == kept
    saver.delete_for_runs([other])
    assert saver.list(None) == []


def test_a_removed_run_that_writes_again_can_be_removed_again(saver: Facade) -> None:
    """A run's id may come back: a retry of a job keeps it. Every thread that it has touched since is found."""
    play = Play(saver)
    app = play.app(abc())
    run = new_run()
    play.invoke(app, {"log": [1]}, of_run(run, "a"))
    saver.delete_for_runs([run])
    play.invoke(app, {"log": [2]}, of_run(run, "a"))
    play.invoke(app, {"log": [3]}, of_run(run, "b"))
    saver.delete_for_runs([run])
    assert saver.list(None) == []


def test_a_waiting_run_is_removed_with_its_question_and_its_subgraph(saver: Facade) -> None:
    play = Play(saver)
    app = play.app(outer())
    first, second = new_run(), new_run()
    play.invoke(app, {"log": [1]}, of_run(first))
    kept = play.invoke(app, Command(resume="answer"), of_run(first))
    stored = play.stored()
    play.invoke(app, {"log": [2]}, of_run(second))
    assert play.state(app, thread()).interrupts
    saver.delete_for_runs([second])
    assert play.stored() == stored
    assert play.state(app, thread()).interrupts == ()
    assert play.state(app, thread()).values == kept


def test_a_run_named_in_configurable(saver: Facade) -> None:
    play = Play(saver)
    app = play.app(abc())
    play.invoke(app, {"log": [1]}, thread(run_id="by-hand"))
    assert {t.metadata["run_id"] for t in play.stored()} == {"by-hand"}
    saver.delete_for_runs(["by-hand"])
    assert play.stored() == []


def test_copied_thread_and_its_source_go_their_own_ways(saver: Facade) -> None:
    play = Play(saver)
    app = play.app(outer())
    play.invoke(app, {"log": [1]}, thread())
    saver.copy_thread("t", "copy")
    original, copy = play.state(app, thread(), subgraphs=True), play.state(app, thread("copy"), subgraphs=True)
    assert copy.values == original.values
    assert [i.value for i in copy.interrupts] == ["?"]
    assert copy.config["configurable"] == {**original.config["configurable"], "thread_id": "copy"}
    one = play.invoke(app, Command(resume="left"), thread())
    other = play.invoke(app, Command(resume="right"), thread("copy"))
    assert (one["log"][-2:], other["log"][-2:]) == (["left", "b"], ["right", "b"])
    play.invoke(app, {"log": [2]}, thread("copy"))
    assert play.state(app, thread()).values == one
    for name in ("t", "copy"):
        history = play.history(app, thread(name))
        assert all(s.config["configurable"]["thread_id"] == name for s in history)
        parents = {s.parent_config["configurable"]["thread_id"] for s in history if s.parent_config}
        assert parents == {name}
    saver.delete_thread("t")
    done = play.invoke(app, Command(resume="end"), thread("copy"))
    assert done["log"][: len(other["log"])] == other["log"]


def test_time_travel_in_a_copy(saver: Facade) -> None:
    play = Play(saver)
    app = play.app(abc())
    play.invoke(app, {"log": ["in"]}, thread())
    saver.copy_thread("t", "copy")
    old = play.history(app, thread("copy"))[2]
    fork = play.update(app, old.config, {"log": ["forked"]})
    assert play.invoke(app, None, fork)["log"] == ["in", "a", "forked", "b", "c"]
    assert len(play.history(app, thread())) == 5


def test_deleted_thread_begins_anew(saver: Facade) -> None:
    play = Play(saver)
    app = play.app(outer())
    play.invoke(app, {"log": [1]}, thread())
    saver.delete_thread("t")
    assert play.state(app, thread()).next == ()
    play.invoke(app, {"log": ["anew"]}, thread())
    assert play.invoke(app, Command(resume="ok"), thread())["log"][0] == "anew"
