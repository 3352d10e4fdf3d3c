"""Threads of real graphs that expire: a question waits for as long as it is looked at, and goes as a whole."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any, TypeVar

import pytest
import redis
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from redis_ckpt import CheckpointerError
from redis_ckpt._keys import thread_keys
from tests.integration.graphs import DURABILITIES, App, Builder, Durability, Play, inside, thread
from tests.integration.test_graphs_delta import Log as Deltas
from tests.integration.test_graphs_delta import extend, merge, step
from tests.integration.test_graphs_interrupts import after, approve, before, line
from tests.integration.test_graphs_subgraphs import Log, asks, chain, nested, says
from tests.savers import Facade, MakeSaver
from tests.servers import REAL_KINDS, on_real_servers

SECONDS = 20.0
MOST_APART_MS = 1
SHORT, LONG = 0.2, 1000.0
IDLE_TIMES = (0.3, 0.8, 2.0, 5.0)

on_one_server = pytest.mark.parametrize("server", REAL_KINDS[:1], indirect=True)

T = TypeVar("T")


class Plain(TypedDict):
    plain: Any


class Often(Plain):
    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=3)]
    seen: Annotated[dict[str, Any], DeltaChannel(merge, snapshot_frequency=3)]


def busy(schema: Any, memory: bool | None = True, within: Callable[[], object] = lambda: None) -> Builder:
    """Deltas, a fan-out, and a subgraph with deltas of its own that asks. Each node does `within` first."""

    def step(name: str, **more: Any) -> Any:
        def node(state: Any) -> Any:
            within()
            return {"log": [name], "plain": name, **more}

        return node

    def work(arg: Any) -> Any:
        within()
        return {"log": [arg["n"]]}

    def ask(state: Any) -> Any:
        return {"log": [interrupt(len(state["log"]))]}

    inner = StateGraph(schema, input_schema=Plain, output_schema=Plain)
    inner.add_sequence([("x", step("x", seen={"x": 1})), ("ask", ask), ("y", step("y"))])
    inner.add_edge(START, "x")
    builder = StateGraph(schema)
    worker: Any = work
    builder.add_node("worker", worker)
    builder.add_sequence([("inner", inner.compile(checkpointer=memory)), ("b", step("b"))])
    builder.add_node("a", step("a", seen={"a": 2}))
    builder.add_edge(START, "a")
    builder.add_conditional_edges("a", lambda state: [Send("worker", {"n": n}) for n in range(2)], ["worker"])
    builder.add_edge("worker", "inner")
    return builder


WAITING: dict[str, Callable[[], Builder]] = {
    "alone": lambda: line(before, approve, after),
    "in a subgraph": nested,
    "in a subgraph with memory": lambda: nested(True, True),
    "among deltas": lambda: busy(Often),
}
"""Graphs that ask one question."""


class TooSlow(Exception):
    """The machine let more time pass than a thread may be idle."""


class Pace:
    """The steps of a story that must follow on each other before the thread is idle for too long."""

    def __init__(self, idle: float) -> None:
        self.idle = idle
        self.thread_id = f"idle for {idle}"
        self.config = thread(self.thread_id)
        self._used = time.monotonic()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Uses the thread at some moment; says TooSlow, whatever happened, if it may have expired before."""
        begun = time.monotonic()
        try:
            yield
        finally:
            if time.monotonic() - self._used >= self.idle:
                raise TooSlow
        self._used = begun


def in_time(story: Callable[[Pace], T]) -> T:
    """Play a story with an idle time that this machine, as busy as it is, can keep up with."""
    for idle in IDLE_TIMES:
        try:
            return story(Pace(idle))
        except TooSlow:
            continue
    raise AssertionError(f"no story was played in {IDLE_TIMES[-1]} seconds a step")


def time_left(raw: redis.Redis, thread_id: str = "t") -> list[int]:
    """What each key that the thread has still has to live, in ms: for all the same."""
    for _ in range(20):  # some servers let time pass within a transaction
        pipeline: Any = raw.pipeline(transaction=True)
        for key in thread_keys(b"ckpt", thread_id):
            pipeline.pttl(key)
        found = [ms for ms in pipeline.execute() if ms != -2]
        if found and max(found) - min(found) <= MOST_APART_MS:
            return found
    raise AssertionError(f"the deadlines differ: {found}")


def wait_until_gone(raw: redis.Redis, thread_id: str = "t") -> None:
    """Wait until the thread has expired; meanwhile it has all of its five keys."""
    keys = thread_keys(b"ckpt", thread_id)
    until = time.monotonic() + SECONDS
    while found := raw.exists(*keys):
        assert found == len(keys)
        assert time.monotonic() < until, "the thread never expired"
        time.sleep(0.01)


def expected(builder: Builder, *inputs: Any) -> Any:
    """What a graph answers at last that nothing was ever taken from."""
    app: App = builder.compile(checkpointer=InMemorySaver())
    for value in inputs:
        found = app.invoke(value, thread())
    return found


@pytest.mark.parametrize(
    ("server", "place"),
    [*((REAL_KINDS[0], place) for place in WAITING), *((kind, "in a subgraph") for kind in ("fake", *REAL_KINDS[1:]))],
    indirect=["server"],
)
def test_a_question_outlives_many_idle_times_while_it_is_looked_at(
    make_saver: MakeSaver, raw: redis.Redis, place: str
) -> None:
    def story(pace: Pace) -> Any:
        saver = make_saver(ttl=pace.idle, refresh_on_read=True)
        play = Play(saver)
        app = play.app(WAITING[place]())
        with pace.step():
            play.invoke(app, {"log": ["in"]}, pace.config)
        with pace.step():
            asked, stored = play.state(app, pace.config), play.stored(pace.thread_id)
        namespaces = [t.config for t in stored]
        looks: Iterator[Callable[[], object]] = itertools.cycle(
            [
                lambda: play.state(app, pace.config),
                *(lambda config=config: saver.get_tuple(config) for config in namespaces),
                lambda: saver.list(pace.config, limit=1),
            ]
        )
        until = time.monotonic() + 2.5 * pace.idle
        while time.monotonic() < until:
            with pace.step():
                assert next(looks)()
            time.sleep(pace.idle / 10)
        with pace.step():
            left = time_left(raw, pace.thread_id)
            assert len(left) == 5
            assert 0 < max(left) <= pace.idle * 1000
            assert play.state(app, pace.config) == asked
            assert play.stored(pace.thread_id) == stored
        with pace.step():
            return play.invoke(app, Command(resume="yes"), pace.config)

    assert in_time(story) == expected(WAITING[place](), {"log": ["in"]}, Command(resume="yes"))


@on_real_servers  # fakeredis looks at its clock for each key, so a thread may seem to go bit by bit
@pytest.mark.parametrize(("place", "looks"), [("alone", True), ("in a subgraph", False), ("among deltas", False)])
def test_a_question_that_nothing_keeps_goes_as_a_whole(
    make_saver: MakeSaver, raw: redis.Redis, place: str, looks: bool
) -> None:
    """Looks keep nothing without `refresh_on_read`: each finds all of it, or nothing."""

    def story(pace: Pace) -> tuple[Play, App, RunnableConfig]:
        play = Play(make_saver(ttl=pace.idle))
        app = play.app(WAITING[place]())
        with pace.step():
            play.invoke(app, {"log": ["in"]}, pace.config)
            asked = play.state(app, pace.config)
        while looks and (seen := play.state(app, pace.config)).values:
            assert seen == asked
        wait_until_gone(raw, pace.thread_id)
        return play, app, pace.config

    play, app, config = in_time(story)
    gone = play.state(app, config, subgraphs=True)
    assert (gone.values, gone.next, gone.interrupts) == ({}, (), ())
    assert play.history(app, config) == []
    assert play.stored(config["configurable"]["thread_id"]) == []
    anew = play.invoke(app, {"log": ["anew"]}, config)
    assert anew == expected(WAITING[place](), {"log": ["anew"]}) | {"__interrupt__": anew["__interrupt__"]}


@pytest.mark.parametrize("durability", DURABILITIES)
def test_the_time_of_one_run_counts_for_all_that_it_writes(
    make_saver: MakeSaver, raw: redis.Redis, durability: Durability
) -> None:
    """The last that a run writes which asks are pending writes; of one that ends it is a checkpoint."""
    play = Play(make_saver(ttl=LONG))
    app = play.app(nested())
    for seconds in (100.0, timedelta(hours=1)):
        ms = int(1000 * (seconds.total_seconds() if isinstance(seconds, timedelta) else seconds))
        own = thread(checkpoint_ttl=seconds)
        play.invoke(app, {"log": []}, own, durability=durability)
        assert len(left := time_left(raw)) == 5
        assert ms - 60_000 < max(left) <= ms
        play.invoke(app, Command(resume="yes"), own, durability=durability)
        assert ms - 60_000 < max(time_left(raw)) <= ms
        play.update(app, own, {"log": ["by hand"]})
        assert ms - 60_000 < max(time_left(raw)) <= ms
        # The next run does not say anything.
        play.invoke(app, {"log": []}, thread(), durability=durability)
        assert 940_000 < max(time_left(raw)) <= 1_000_000
        play.invoke(app, Command(resume="yes"), thread(), durability=durability)
        assert 940_000 < max(time_left(raw)) <= 1_000_000


@pytest.mark.parametrize("durability", DURABILITIES)
def test_the_deadline_of_one_run_stays_if_no_other_is_said(
    make_saver: MakeSaver, raw: redis.Redis, durability: Durability
) -> None:
    play = Play(make_saver())
    app = play.app(nested())
    play.invoke(app, {"log": []}, thread(), durability=durability)
    assert time_left(raw) == [-1] * 5
    play.invoke(app, Command(resume="yes"), thread(checkpoint_ttl=100), durability=durability)
    first = max(time_left(raw))
    assert 40_000 < first <= 100_000
    play.invoke(app, {"log": []}, thread(), durability=durability)
    assert len(left := time_left(raw)) == 5
    assert max(left) <= first


def two_questions() -> Builder:
    inner = chain(Log, ask=asks, again=asks).compile()
    return chain(Log, begin=says("begin"), inner=inner, end=says("end"))


def work_shortly(saver: Facade, check: Callable[[], object]) -> None:
    """All that a worker does whose threads live for a moment, on a thread that waits: reads, corrects, asks again."""
    play = Play(saver)
    app = play.app(two_questions())
    waiting = play.state(app, thread(), subgraphs=True)
    check()
    play.update(app, inside(waiting).config, {"log": ["corrected"]})
    check()
    asked = play.invoke(app, Command(resume="one"), thread(checkpoint_ttl=SHORT))
    assert [i.value for i in asked["__interrupt__"]] == ["after 3"]
    check()
    play.history(app, thread())
    assert saver.get_tuple(thread(checkpoint_ttl=SHORT))
    saver.call("sweep", ["t"], keep_last=1, older_than=0)
    check()


def test_a_pinned_question_outlives_the_runs_of_short_lived_workers(make_saver: MakeSaver, raw: redis.Redis) -> None:
    boss, worker = make_saver(), make_saver(ttl=SHORT, refresh_on_read=True, keep_last=1)
    play = Play(boss)
    app = play.app(two_questions())
    play.invoke(app, {"log": []}, thread())
    assert boss.call("persist", "t")

    def check() -> None:
        assert time_left(raw) == [-1] * 5

    work_shortly(worker, check)
    assert play.invoke(app, Command(resume="two"), thread())["log"][-3:] == ["one", "two", "end"]
    assert set(time_left(raw)) == {-1}


def test_a_question_with_an_idle_time_of_its_own_keeps_it(make_saver: MakeSaver, raw: redis.Redis) -> None:
    boss, worker = make_saver(), make_saver(ttl=SHORT, refresh_on_read=True, keep_last=1)
    play = Play(boss)
    app = play.app(two_questions())
    play.invoke(app, {"log": []}, thread())
    assert boss.call("expire", "t", LONG)

    def check() -> None:
        assert len(left := time_left(raw)) == 5
        assert 940_000 < max(left) <= 1_000_000

    work_shortly(worker, check)
    # Taken back, the worker's own time counts.
    assert worker.call("expire", "t", None)
    wait_until_gone(raw)
    assert play.state(app, thread()).values == {}


class Slow:
    """A step of a graph in which its thread expires, once `saver` is set."""

    def __init__(self, raw: redis.Redis) -> None:
        self.raw = raw
        self.saver: Facade | None = None

    def __call__(self, state: Any) -> Any:
        until = time.monotonic() + SECONDS
        # The checkpoint before may still be on its way.
        while self.saver is not None and self.raw.exists(thread_keys(b"ckpt", "t").checkpoints):
            assert time.monotonic() < until, "the thread never expired"
            self.saver.call("expire", "t", 0.001)
            time.sleep(0.002)
        return {"log": ["slow"]}


@on_one_server
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_run_whose_thread_expires_under_it_leaves_all_of_its_state(
    saver: Facade, raw: redis.Redis, inner: bool, durability: Durability
) -> None:
    slow = Slow(raw)

    def builder() -> Builder:
        middle: Any = chain(Log, enter=says("enter"), slow=slow, leave=says("leave")).compile() if inner else slow
        return chain(Log, begin=says("begin"), middle=middle, ask=asks, end=says("end"))

    inputs: tuple[Any, ...] = ({"log": [1]}, Command(resume="one"), {"log": [2]}, Command(resume="two"))
    whole = expected(builder(), *inputs)
    play = Play(saver)
    app = play.app(builder())
    for n, value in enumerate(inputs):
        slow.saver = saver if n == 2 else None
        found = play.invoke(app, value, thread(), durability=durability)
        assert play.state(app, thread()).values["log"] == found["log"]
    assert found == whole


@on_one_server
@pytest.mark.parametrize("durability", DURABILITIES)
def test_deltas_that_expired_under_a_run_are_never_read_as_less(
    saver: Facade, raw: redis.Redis, durability: Durability
) -> None:
    """What a delta channel had before is gone for good: that is said, by the run or by whoever reads."""
    slow = Slow(raw)
    builder = StateGraph(Deltas)
    nodes: dict[str, Any] = {"a": step("a"), "slow": slow, "b": step("b")}
    builder.add_sequence([*nodes.items()])
    builder.add_edge(START, "a")
    play = Play(saver)
    app = play.app(builder)
    play.invoke(app, {"log": [1]}, thread(), durability=durability)
    slow.saver = saver
    try:
        lived = play.invoke(app, {"log": [2]}, thread(), durability=durability)
        assert lived["log"] == [1, "a", "slow", "b", 2, "a", "slow", "b"]
        read = play.state(app, thread()).values
    except CheckpointerError:
        return
    assert read == lived
