"""The functional API: entrypoints and tasks, the previous result, what is returned apart from what is saved."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from langgraph.func import entrypoint, task
from langgraph.types import Command, interrupt

from tests.integration.graphs import DURABILITIES, App, Durability, Play, thread, twice
from tests.savers import Facade

SECONDS = 20.0


def essay(play: Play, runs: Counter[str]) -> App:
    """Write drafts in parallel tasks, ask for a review, remember how many there were."""

    @task
    def draft(topic: str, n: int) -> str:
        runs["draft"] += 1
        return f"{topic}/{n}"

    @task
    def review(drafts: list[str]) -> str:
        runs["review"] += 1
        choice: str = interrupt({"choose": drafts})
        return choice

    @entrypoint(checkpointer=play.saver)
    def write(topic: str, *, previous: int | None = None) -> entrypoint.final[dict[str, Any], int]:
        runs["write"] += 1
        drafts = [f.result() for f in [draft(topic, n) for n in range(3)]]
        chosen = review(drafts).result()
        count = (previous or 0) + 1
        return entrypoint.final(value={"chosen": chosen, "number": count}, save=count)

    return write


@pytest.mark.parametrize("durability", DURABILITIES)
def test_tasks_do_not_run_again_after_the_answer(saver: Facade, durability: Durability) -> None:
    def story(play: Play) -> None:
        runs: Counter[str] = Counter()
        app = essay(play, runs)
        asked = play.invoke(app, "cats", thread(), durability=durability)
        assert asked["__interrupt__"][0].value == {"choose": ["cats/0", "cats/1", "cats/2"]}
        done = play.invoke(app, Command(resume="cats/1"), thread(), durability=durability)
        assert done == {"chosen": "cats/1", "number": 1}
        assert runs == {"draft": 3, "review": 2, "write": 2}
        play.invoke(app, "dogs", thread(), durability=durability)
        assert play.invoke(app, Command(resume="dogs/0"), thread(), durability=durability)["number"] == 2
        play.history(app, thread())
        assert play.stored()[-1].checkpoint["channel_values"]["__previous__"] == 2

    twice(story, saver)


def test_previous_is_what_the_last_run_returned(saver: Facade) -> None:
    def story(play: Play) -> None:
        @entrypoint(checkpointer=play.saver)
        def total(n: int, *, previous: int | None = None) -> int:
            return n + (previous or 0)

        assert [play.invoke(total, n, thread()) for n in (1, 2, 3)] == [1, 3, 6]
        assert play.invoke(total, 5, thread("other")) == 5
        older = play.history(total, thread())[2]
        play.invoke(total, 100, older.config)
        play.history(total, thread())

    twice(story, saver, "t", "other")


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_failed_task_alone_runs_again(saver: Facade, durability: Durability) -> None:
    def story(play: Play) -> None:
        runs: Counter[str] = Counter()
        broken = {"now": True}

        @task
        def good(n: int) -> int:
            runs[f"good {n}"] += 1
            return n

        @task
        def bad() -> str:
            runs["bad"] += 1
            if broken["now"]:
                raise RuntimeError("broken task")
            return "mended"

        @entrypoint(checkpointer=play.saver)
        def work(value: str) -> list[Any]:
            results: list[Any] = [f.result() for f in [good(n) for n in range(3)]]
            _await_writes(play, 3)
            return [*results, bad().result()]

        assert str(play.fails(work, "go", thread(), durability=durability)) == "broken task"
        broken["now"] = False
        assert play.invoke(work, None, thread(), durability=durability) == [0, 1, 2, "mended"]
        assert runs == {"good 0": 1, "good 1": 1, "good 2": 1, "bad": 2}
        play.history(work, thread())

    twice(story, saver)


def _await_writes(play: Play, count: int) -> None:
    """Wait, inside of the run, until the saver knows the results of `count` tasks."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        found = play.saver.get_tuple(thread())
        if found and len({w[0] for w in found.pending_writes or []}) >= count:
            return
        time.sleep(0.002)
    raise AssertionError("the results of the tasks were never stored")


def test_several_questions_of_an_entrypoint(saver: Facade) -> None:
    def story(play: Play) -> None:
        @entrypoint(checkpointer=play.saver)
        def form(fields: list[str]) -> dict[str, Any]:
            return {name: interrupt(name) for name in fields}

        asked = play.invoke(form, ["name", "age"], thread())
        assert asked["__interrupt__"][0].value == "name"
        assert play.invoke(form, Command(resume="Ada"), thread())["__interrupt__"][0].value == "age"
        assert play.invoke(form, Command(resume=36), thread()) == {"name": "Ada", "age": 36}
        play.history(form, thread())

    twice(story, saver)


def test_a_run_that_returns_nothing(saver: Facade) -> None:
    def story(play: Play) -> None:
        @entrypoint(checkpointer=play.saver)
        def quiet(value: Any) -> entrypoint.final[None, dict[str, Any]]:
            return entrypoint.final(value=None, save={"saw": value, "raw": b"\x00\xff"})

        assert play.invoke(quiet, {"x": 1}, thread()) is None
        kept = play.stored()[-1].checkpoint["channel_values"]
        assert kept["__previous__"] == {"saw": {"x": 1}, "raw": b"\x00\xff"}

    twice(story, saver)
