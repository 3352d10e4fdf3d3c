"""Time travel, forks, corrections of the state, and the state history with all that it can be asked for."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.errors import InvalidUpdateError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, StateSnapshot, StateUpdate, interrupt
from typing_extensions import TypedDict

from tests.integration.graphs import DURABILITIES, App, Builder, Durability, Play, thread, twice
from tests.savers import Facade


class Log(TypedDict):
    log: Annotated[list[Any], operator.add]
    last: Any


def step(name: str) -> Any:
    return lambda state: {"log": [name], "last": f"{name}{len(state['log'])}"}


def abc() -> Builder:
    builder = StateGraph(Log)
    builder.add_sequence([(name, step(name)) for name in "abc"])
    builder.add_edge(START, "a")
    builder.add_edge("c", END)
    return builder


def at(history: list[StateSnapshot], *following: str) -> StateSnapshot:
    """The newest snapshot from which these nodes go on."""
    return next(s for s in history if s.next == following)


def step_of(snapshot: StateSnapshot) -> int:
    assert snapshot.metadata is not None
    return snapshot.metadata["step"]


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_an_older_checkpoint_is_run_again(saver: Facade, durability: Durability) -> None:
    def story(play: Play) -> None:
        app = play.app(abc())
        play.invoke(app, {"log": ["in"]}, thread(), durability=durability)
        before_b = at(play.history(app, thread()), "b")
        again = play.invoke(app, None, before_b.config, durability=durability)
        assert again == {"log": ["in", "a", "b", "c"], "last": "c3"}
        history = play.history(app, thread())
        assert len([s for s in history if s.next == ("c",)]) == 2
        assert play.state(app, before_b.config).values == before_b.values
        assert play.state(app, thread()).config == history[0].config

    twice(story, saver)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_new_input_at_an_older_checkpoint_makes_a_branch(saver: Facade, durability: Durability) -> None:
    def story(play: Play) -> None:
        app = play.app(abc())
        play.invoke(app, {"log": ["one"]}, thread(), durability="sync")
        old = at(play.history(app, thread()), "c")
        branch = play.invoke(app, {"log": ["two"]}, old.config, durability=durability)
        assert branch["log"] == ["one", "a", "b", "two", "a", "b", "c"]
        assert play.invoke(app, {"log": ["three"]}, thread())["log"][:7] == branch["log"]
        play.history(app, thread())

    twice(story, saver)


def test_a_fork_goes_on_after_the_node_it_was_made_as(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = play.app(abc())
        play.invoke(app, {"log": ["in"]}, thread())
        old = at(play.history(app, thread()), "b")
        for as_node in (None, "a", "b", "c", START):
            fork = play.update(app, old.config, {"log": [f"as {as_node}"]}, as_node)
            forked = play.state(app, fork)
            assert forked.parent_config == old.config
            assert forked.values["log"] == ["in", "a", f"as {as_node}"]
            play.invoke(app, None, fork)
        play.history(app, thread())

    twice(story, saver)


def test_two_branches_of_one_checkpoint_keep_apart(saver: Facade) -> None:
    """Both give the same channels their next version; the values must not meet."""

    def story(play: Play) -> None:
        app = play.app(abc())
        play.invoke(app, {"log": ["in"]}, thread())
        old = at(play.history(app, thread()), "b")
        forks = [play.update(app, old.config, {"log": [n], "last": n}, "a") for n in range(4)]
        ends = [play.invoke(app, None, fork)["log"] for fork in forks]
        assert ends == [["in", "a", n, "b", "c"] for n in range(4)]
        for n, fork in enumerate(forks):
            assert play.state(app, fork).values["last"] == n
        play.history(app, thread())

    twice(story, saver)


def test_updates_on_an_empty_thread_and_of_nothing(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = play.app(abc())
        assert play.state(app, thread()).values == {}
        assert play.history(app, thread()) == []
        play.update(app, thread(), {"log": ["seed"]}, "a")
        assert play.state(app, thread()).next == ("b",)
        play.update(app, thread(), None)
        play.update(app, thread(), None, END)
        assert play.state(app, thread()).next == ()
        play.update(app, thread(), None, "__copy__")
        play.history(app, thread())

    twice(story, saver)


def test_copy_of_a_checkpoint_keeps_its_values(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = play.app(abc())
        play.invoke(app, {"log": ["in"]}, thread())
        old = at(play.history(app, thread()), "b")
        copy = play.update(app, old.config, None, "__copy__")
        assert play.state(app, copy).values == old.values
        assert play.state(app, copy).next == ("b",)
        assert play.invoke(app, None, copy)["log"] == ["in", "a", "b", "c"]
        play.history(app, thread())

    twice(story, saver)


def test_bulk_updates_make_one_checkpoint_a_superstep(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = play.app(abc())
        play.bulk(
            app,
            thread(),
            [
                [StateUpdate({"log": ["in"]}, START)],
                [StateUpdate({"log": ["a"], "last": 1}, "a")],
                [StateUpdate({"log": ["b1"]}, "b"), StateUpdate({"log": ["c1"]}, "c")],
            ],
        )
        assert play.state(app, thread()).values == {"log": ["in", "a", "b1", "c1"], "last": 1}
        assert play.state(app, thread()).next == ("c",)
        assert play.invoke(app, None, thread())["log"][-1] == "c"
        assert [step_of(s) for s in play.history(app, thread())] == [3, 2, 1, 0]

    twice(story, saver)


def test_a_refused_update_stores_nothing(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = play.app(abc())
        play.invoke(app, {"log": ["in"]}, thread())
        with pytest.raises(InvalidUpdateError):
            play.update(app, thread(), {"log": ["x"]}, "nobody")
        assert len(play.history(app, thread())) == 5

    twice(story, saver)


def _long_thread(play: Play) -> App:
    app = play.app(abc())
    for n in range(3):
        config: RunnableConfig = {**thread(), "metadata": {"user": f"u{n % 2}", "turn": n}}
        play.invoke(app, {"log": [n]}, config)
    return app


ASKED: list[dict[str, Any]] = [
    {"limit": 0},
    {"limit": 1},
    {"limit": 7},
    {"limit": 100},
    {"filter": {"source": "input"}},
    {"filter": {"source": "loop", "step": 3}},
    {"filter": {"user": "u0"}},
    {"filter": {"user": "u0", "turn": 2}, "limit": 2},
    {"filter": {"user": "nobody"}},
    {"filter": {"parents": {}}},
    {"filter": {}},
]


def test_history_is_filtered_and_limited(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = _long_thread(play)
        for asked in ASKED:
            found = play.history(app, thread(), **asked)
            assert len(found) <= asked.get("limit", 15)
            assert [step_of(s) for s in found] == sorted((step_of(s) for s in found), reverse=True)
            for key, value in asked.get("filter", {}).items():
                metadata: list[Any] = [s.metadata for s in found]
                assert all(each[key] == value for each in metadata)

    twice(story, saver)


def test_history_before_a_checkpoint(saver: Facade) -> None:
    def story(play: Play) -> None:
        app = _long_thread(play)
        history = play.history(app, thread())
        for n in (0, 1, 7, 14):
            before = history[n].config
            assert play.history(app, thread(), before=before) == history[n + 1 :]
            assert play.history(app, thread(), before=before, limit=2) == history[n + 1 : n + 3]
        assert [step_of(s) for s in play.history(app, thread(), before=history[3].config, filter={"turn": 0})] == [
            3,
            2,
            1,
            0,
            -1,
        ]

    twice(story, saver)


def test_a_thread_is_read_back_page_by_page(saver: Facade) -> None:
    """As a user interface does it: the last item of a page is the bound of the next."""

    def story(play: Play) -> None:
        app = play.app(abc())
        play.bulk(app, thread(), [[StateUpdate({"log": [n], "last": n}, "a")] for n in range(40)])
        pages: list[StateSnapshot] = []
        before: RunnableConfig | None = None
        while page := play.history(app, thread(), before=before, limit=7):
            pages += page
            before = page[-1].config
        assert [s.values["last"] for s in pages] == list(range(39, -1, -1))
        assert pages == play.history(app, thread())

    twice(story, saver)


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_an_answer_is_taken_back(saver: Facade, durability: Durability) -> None:
    """Answer, go back to the question, answer otherwise: two branches with their own answers."""

    def story(play: Play) -> None:
        builder = StateGraph(Log)
        builder.add_node("ask", lambda state: {"log": [interrupt("which?")]})
        builder.add_node("end", step("end"))
        builder.add_edge(START, "ask")
        builder.add_edge("ask", "end")
        app = play.app(builder)
        play.invoke(app, {"log": []}, thread(), durability=durability)
        question = play.state(app, thread())
        assert play.invoke(app, Command(resume="left"), thread(), durability=durability)["log"] == ["left", "end"]
        copy = play.update(app, question.config, None, "__copy__")
        assert len(play.invoke(app, None, copy, durability=durability)["__interrupt__"]) == 1
        other = play.invoke(app, Command(resume="right"), thread(), durability=durability)
        assert other["log"] == ["right", "end"]
        play.history(app, thread())

    twice(story, saver)
