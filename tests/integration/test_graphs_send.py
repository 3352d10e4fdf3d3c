"""Fan-out with Send: a task that fails stores its error, the tasks that had finished do not run again."""

from __future__ import annotations

import operator
import time
from collections import Counter
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt
from typing_extensions import TypedDict

from tests.integration.graphs import DURABILITIES, Builder, Durability, Play, thread, twice
from tests.savers import Facade

SECONDS = 20.0


class Work(TypedDict):
    jobs: list[Any]
    done: Annotated[list[Any], operator.add]


class Broken(Exception):
    """What a failing worker raises."""


def spread(state: Work) -> list[Send]:
    return [Send("worker", job) for job in state["jobs"]]


def plan(state: Work) -> dict[str, Any]:
    return {"done": ["planned"]}


def collect(state: Work) -> dict[str, Any]:
    return {"done": ["collected"]}


def fan_out(worker: Any) -> Builder:
    builder = StateGraph(Work)
    builder.add_node("plan", plan)
    builder.add_node("worker", worker)
    builder.add_node("collect", collect)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", spread, ["worker"])
    builder.add_edge("worker", "collect")
    builder.add_edge("collect", END)
    return builder


class Workers:
    """Workers whose runs are counted; one of them fails until it is mended, once its siblings are stored."""

    def __init__(self, play: Play, siblings: int, bad: Any) -> None:
        self.play = play
        self.siblings = siblings
        self.bad = bad
        self.runs: Counter[Any] = Counter()

    def __call__(self, job: Any) -> dict[str, Any]:
        self.runs[job] += 1
        if job == self.bad:
            self._await_siblings()
            raise Broken(f"job {job}")
        return {"done": [job]}

    def _await_siblings(self) -> None:
        """Asks the saver from inside of a task, as a node of a real graph may."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            found = self.play.saver.get_tuple(thread())
            if found and len({w[0] for w in found.pending_writes or [] if w[1] == "done"}) >= self.siblings:
                return
            time.sleep(0.002)
        raise AssertionError("the writes of the siblings were never stored")


@pytest.mark.parametrize("durability", DURABILITIES)
def test_every_sent_task_is_joined_in_order(saver: Facade, durability: Durability) -> None:
    jobs = [f"job-{n:02}" for n in range(12)]

    def story(play: Play) -> None:
        app = play.app(fan_out(lambda job: {"done": [job]}))
        found = play.invoke(app, {"jobs": jobs}, thread(), durability=durability)
        assert found["done"] == ["planned", *jobs, "collected"]
        play.history(app, thread())

    twice(story, saver)


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_finished_siblings_of_a_failed_task_do_not_run_again(saver: Facade, durability: Durability) -> None:
    def story(play: Play) -> None:
        workers = Workers(play, siblings=3, bad=2)
        app = play.app(fan_out(workers))
        error = play.fails(app, {"jobs": [0, 1, 2, 3]}, thread(), durability=durability)
        assert (type(error), str(error)) == (Broken, "job 2")
        broken = play.state(app, thread())
        assert [bool(t.error) for t in broken.tasks] == [False, False, True, False]
        assert workers.runs == {0: 1, 1: 1, 2: 1, 3: 1}
        workers.bad = None
        found = play.invoke(app, None, thread(), durability=durability)
        assert found["done"] == ["planned", 0, 1, 2, 3, "collected"]
        assert workers.runs == {0: 1, 1: 1, 2: 2, 3: 1}
        play.history(app, thread())

    twice(story, saver)


def test_a_task_that_fails_twice_keeps_the_last_error(saver: Facade) -> None:
    def story(play: Play) -> None:
        workers = Workers(play, siblings=1, bad="b")
        app = play.app(fan_out(workers))
        play.fails(app, {"jobs": ["a", "b"]}, thread())
        play.fails(app, None, thread())
        (error,) = [t.error for t in play.state(app, thread()).tasks if t.error]
        assert "job b" in str(error)
        assert workers.runs == {"a": 1, "b": 2}
        workers.bad = None
        assert play.invoke(app, None, thread())["done"] == ["planned", "a", "b", "collected"]

    twice(story, saver)


def test_retries_inside_a_task_leave_one_write(saver: Facade) -> None:
    def story(play: Play) -> None:
        tries: Counter[Any] = Counter()

        def flaky(job: Any) -> dict[str, Any]:
            tries[job] += 1
            if tries[job] < 3:
                raise Broken(job)
            return {"done": [job]}

        builder = StateGraph(Work)
        worker: Any = flaky
        policy = RetryPolicy(initial_interval=0.001, jitter=False, retry_on=Broken)
        builder.add_node("worker", worker, retry_policy=policy)
        builder.add_conditional_edges(START, spread, ["worker"])
        app = play.app(builder)
        assert play.invoke(app, {"jobs": [1, 2]}, thread())["done"] == [1, 2]
        assert tries == {1: 3, 2: 3}
        play.history(app, thread())

    twice(story, saver)


def test_sent_tasks_that_each_ask(saver: Facade) -> None:
    def story(play: Play) -> None:
        runs: Counter[Any] = Counter()

        def worker(job: Any) -> dict[str, Any]:
            runs[job] += 1
            return {"done": [(job, interrupt(job) if job % 2 else "no question")]}

        app = play.app(fan_out(worker))
        play.invoke(app, {"jobs": [0, 1, 2, 3]}, thread())
        asked = play.state(app, thread()).interrupts
        assert sorted(i.value for i in asked) == [1, 3]
        play.invoke(app, Command(resume={i.id: f"answer {i.value}" for i in asked}), thread())
        done = play.state(app, thread()).values["done"]
        assert [tuple(pair) for pair in done[1:5]] == [
            (0, "no question"),
            (1, "answer 1"),
            (2, "no question"),
            (3, "answer 3"),
        ]
        assert runs == {0: 1, 1: 2, 2: 1, 3: 2}
        play.history(app, thread())

    twice(story, saver)


def test_tasks_sent_by_a_command_of_a_node(saver: Facade) -> None:
    def story(play: Play) -> None:
        def boss(state: Work) -> Command[Any]:
            return Command(update={"done": ["boss"]}, goto=[Send("worker", {"n": n}) for n in (2, 1)])

        builder = StateGraph(Work)
        builder.add_node("boss", boss, destinations=("worker",))
        builder.add_node("worker", lambda job: {"done": [job["n"]]})
        builder.add_edge(START, "boss")
        app = play.app(builder, interrupt_before=["worker"])
        play.invoke(app, {"jobs": []}, thread())
        assert play.state(app, thread()).next == ("worker", "worker")
        assert play.invoke(app, None, thread())["done"] == ["boss", 2, 1]
        play.history(app, thread())

    twice(story, saver)


def test_sends_are_kept_while_the_thread_waits(saver: Facade) -> None:
    """The arguments of a sent task are stored with the task, whatever they are."""
    job = {"raw": b"\xff\x00", "deep": [{"set": {1, 2}}], 3: None}

    def story(play: Play) -> None:
        app = play.app(fan_out(lambda given: {"done": [given]}), interrupt_before=["worker"])
        play.invoke(app, {"jobs": [job, job]}, thread())
        assert play.invoke(app, None, thread())["done"] == ["planned", job, job, "collected"]

    twice(story, saver)
