"""Interrupts and resumes: one, several in one task, several tasks at once, answers by id.

What had finished when a graph stopped to ask does not run again.
"""

from __future__ import annotations

import operator
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Interrupt, interrupt
from typing_extensions import TypedDict

from tests.integration.graphs import DURABILITIES, Builder, Durability, Play, thread, twice
from tests.savers import Facade

if TYPE_CHECKING:
    from tests.conftest import MakeSaver


class Log(TypedDict):
    log: Annotated[list[Any], operator.add]


def line(*nodes: Any) -> Builder:
    """The nodes one after another."""
    builder = StateGraph(Log)
    builder.add_sequence(list(nodes))
    builder.add_edge(START, nodes[0].__name__)
    return builder


def fan(*nodes: Any, join: Any) -> Builder:
    """The nodes side by side, then one that joins them."""
    builder = StateGraph(Log)
    builder.add_node("join", join)
    for node in nodes:
        builder.add_node(node.__name__, node)
        builder.add_edge(START, node.__name__)
    builder.add_edge([node.__name__ for node in nodes], "join")
    builder.add_edge("join", END)
    return builder


def before(state: Log) -> Log:
    return {"log": ["before"]}


def after(state: Log) -> Log:
    return {"log": ["after"]}


def approve(state: Log) -> Log:
    return {"log": [interrupt({"question": "go on?", "so far": state["log"]})]}


def questions(found: Any) -> list[Any]:
    return [i.value for i in found["__interrupt__"]]


@pytest.mark.parametrize("durability", DURABILITIES)
def test_an_approval_waits_and_goes_on(saver: Facade, durability: Durability) -> None:
    def story(play: Play) -> None:
        app = play.app(line(before, approve, after))
        asked = play.invoke(app, {"log": ["in"]}, thread(), durability=durability)
        assert questions(asked) == [{"question": "go on?", "so far": ["in", "before"]}]
        waiting = play.state(app, thread())
        assert waiting.next == ("approve",)
        assert [i.value["question"] for i in waiting.interrupts] == ["go on?"]
        done = play.invoke(app, Command(resume={"yes": True}), thread(), durability=durability)
        assert done == {"log": ["in", "before", {"yes": True}, "after"]}
        history = play.history(app, thread())
        assert any(s.interrupts for s in history)

    twice(story, saver)


def test_a_new_process_finds_the_question(make_saver: MakeSaver) -> None:
    """The graph and the saver are both built anew between the question and the answer."""
    values: list[Any] = [{"log": ["in"]}, Command(resume="fine")]
    for value in values:
        play = Play(make_saver())
        found = play.invoke(play.app(line(before, approve, after)), value, thread())
    assert found["log"] == ["in", "before", "fine", "after"]


@pytest.mark.parametrize("durability", DURABILITIES)
def test_several_interrupts_in_one_task_are_answered_in_order(saver: Facade, durability: Durability) -> None:
    def story(play: Play) -> None:
        runs: Counter[str] = Counter()

        def form(state: Log) -> Log:
            runs["form"] += 1
            return {"log": [[interrupt(f"{n}?") for n in ("name", "age", "town")]]}

        app = play.app(line(before, form, after))
        asked = play.invoke(app, {"log": []}, thread(), durability=durability)
        for question, answer in (("name?", "Ada"), ("age?", 36), ("town?", False)):
            assert questions(asked) == [question]
            assert [i.value for i in play.state(app, thread()).interrupts] == [question]
            asked = play.invoke(app, Command(resume=answer), thread(), durability=durability)
        assert asked == {"log": ["before", ["Ada", 36, False], "after"]}
        assert runs["form"] == 4
        play.history(app, thread())

    twice(story, saver)


def _side_by_side() -> tuple[Builder, Counter[str]]:
    runs: Counter[str] = Counter()

    def left(state: Log) -> Log:
        runs["left"] += 1
        return {"log": [("left", interrupt("left?"))]}

    def right(state: Log) -> Log:
        runs["right"] += 1
        return {"log": [("right", interrupt("right?"), interrupt("sure?"))]}

    def plain(state: Log) -> Log:
        runs["plain"] += 1
        return {"log": ["plain"]}

    return fan(left, right, plain, join=after), runs


@pytest.mark.parametrize("durability", DURABILITIES)
def test_parallel_interrupts_are_resumed_by_id(saver: Facade, durability: Durability) -> None:
    def story(play: Play) -> None:
        builder, runs = _side_by_side()
        app = play.app(builder)
        asked = play.invoke(app, {"log": []}, thread(), durability=durability)
        assert sorted(questions(asked)) == ["left?", "right?"]
        assert runs == {"left": 1, "right": 1, "plain": 1}
        answers = {i.id: i.value.upper() for i in play.state(app, thread()).interrupts}
        asked = play.invoke(app, Command(resume=answers), thread(), durability=durability)
        assert questions(asked) == ["sure?"]
        assert runs == {"left": 2, "right": 2, "plain": 1}
        done = play.invoke(app, Command(resume="yes"), thread(), durability=durability)
        assert [e[0] if isinstance(e, (list, tuple)) else e for e in done["log"]] == ["left", "plain", "right", "after"]
        assert runs == {"left": 2, "right": 3, "plain": 1}
        play.history(app, thread())

    twice(story, saver)


def test_one_of_two_parallel_interrupts_is_answered_first(saver: Facade) -> None:
    def story(play: Play) -> None:
        builder, runs = _side_by_side()
        app = play.app(builder)
        play.invoke(app, {"log": []}, thread())
        by_value = {i.value: i for i in play.state(app, thread()).interrupts}
        asked = play.invoke(app, Command(resume={by_value["left?"].id: 1}), thread())
        assert questions(asked) == ["right?"]
        assert [i.value for i in play.state(app, thread()).interrupts] == ["right?"]
        asked = play.invoke(app, Command(resume={by_value["right?"].id: 2}), thread())
        assert questions(asked) == ["sure?"]
        assert runs["left"] == 2
        done = play.invoke(app, Command(resume=3), thread())
        assert done["log"][-1] == "after"
        assert {tuple(e) for e in done["log"][:-1] if e != "plain"} == {("left", 1), ("right", 2, 3)}
        play.history(app, thread())

    twice(story, saver)


def test_state_is_corrected_while_it_waits(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = play.app(line(before, approve, after))
        play.invoke(app, {"log": ["in"]}, thread())
        play.update(app, thread(), {"log": ["corrected"]})
        assert play.state(app, thread()).next == ("approve",)
        asked = play.invoke(app, None, thread())
        assert questions(asked)[0]["so far"] == ["in", "before", "corrected"]
        done = play.invoke(app, Command(resume="ok", update={"log": ["with it"]}), thread())
        assert done["log"][-3:] == ["with it", "ok", "after"]
        play.history(app, thread())

    twice(story, saver)


def test_a_question_asked_again_after_new_input(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = play.app(line(before, approve, after))
        play.invoke(app, {"log": ["first"]}, thread())
        asked = play.invoke(app, {"log": ["second"]}, thread())
        assert questions(asked)[0]["so far"] == ["first", "before", "second", "before"]
        play.invoke(app, Command(resume="a"), thread())
        assert play.history(app, thread())[0].next == ()

    twice(story, saver)


def test_an_interrupt_value_of_any_kind_comes_back(saver: Facade) -> None:
    value = {"raw": b"\x00\xff", "set": frozenset({1}), 1: ["a", None], "marker": {"__interrupt__": [1], "lc": 1}}

    def story(play: Play) -> None:
        def ask(state: Log) -> Log:
            return {"log": [interrupt(value)]}

        app = play.app(line(ask))
        play.invoke(app, {"log": []}, thread())
        (kept,) = play.state(app, thread()).interrupts
        assert isinstance(kept, Interrupt)
        assert kept.value == value
        assert play.invoke(app, Command(resume=value), thread()) == {"log": [value]}

    twice(story, saver)


def test_caught_error_next_to_a_waiting_task(saver: Facade) -> None:
    def story(play: Play) -> None:
        config: RunnableConfig = thread()
        fail = {"now": True}

        def asks(state: Log) -> Log:
            return {"log": [interrupt("?")]}

        def breaks(state: Log) -> Log:
            if fail["now"]:
                raise RuntimeError("out of order")
            return {"log": ["repaired"]}

        app = play.app(line(asks, breaks))
        play.invoke(app, {"log": []}, config)
        assert str(play.fails(app, Command(resume=1), config)) == "out of order"
        (task,) = play.state(app, config).tasks
        assert "out of order" in str(task.error)
        fail["now"] = False
        assert play.invoke(app, None, config) == {"log": [1, "repaired"]}
        play.history(app, config)

    twice(story, saver)
