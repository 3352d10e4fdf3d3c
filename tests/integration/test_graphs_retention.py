"""Threads of real graphs that are kept short while they run: what stays reads the same, and goes on the same."""

from __future__ import annotations

import operator
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import cycle
from typing import Annotated, Any

import pytest
import redis
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from redis_ckpt import CheckpointerError, RedisSaver
from redis_ckpt._codec import decode_header
from redis_ckpt._keys import US, quote, thread_keys
from redis_ckpt._ops.retain import slack
from tests.integration.graphs import DURABILITIES, App, Builder, Durability, Play, Telling, difference, inside, thread
from tests.integration.test_graphs_delta import Short, abc, extend, merge
from tests.integration.test_graphs_expiry import Often, Plain, busy
from tests.integration.test_graphs_functional import essay
from tests.integration.test_graphs_send import fan_out
from tests.integration.test_graphs_subgraphs import chain, nested
from tests.savers import Facade, MakeSaver
from tests.servers import REAL_KINDS, Server

on_one_server = pytest.mark.parametrize("server", REAL_KINDS[:1], indirect=True)
in_each_durability = pytest.mark.parametrize("durability", DURABILITIES)

Drive = Callable[[App, Any], Any]
"""Runs a graph on from an input; answers its last state."""


class Remembers(Plain):
    log: Annotated[list[Any], operator.add]


class Rarely(Plain):
    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=50)]
    seen: Annotated[dict[str, Any], DeltaChannel(merge, snapshot_frequency=50)]


def rounds(app: App, count: int, drive: Drive, read: Callable[[App], Any]) -> list[Any]:
    """Every answer and every state of so many questions and answers."""
    told: list[Any] = []
    for n in range(count):
        values: list[Any] = [{"log": [n]}, Command(resume=f"answer {n}")]
        for value in values:
            told += [drive(app, value), read(app)]
    return told


def lived(play: Play, app: App, count: int, drive: Drive) -> list[Any]:
    return rounds(app, count, drive, lambda app: play.state(app, thread()).values)


@cache
def never_pruned(schema: Any, memory: bool | None, count: int, durability: Durability) -> tuple[list[Any], list[Any]]:
    """The answers of a busy thread in InMemorySaver, and its history."""
    app = busy(schema, memory).compile(checkpointer=InMemorySaver())

    def drive(app: App, value: Any) -> Any:
        return app.invoke(value, thread(), durability=durability)

    told = rounds(app, count, drive, lambda app: app.get_state(thread()).values)
    return told, list(app.get_state_history(thread()))


def assert_alike(ours: Any, theirs: Any) -> None:
    found = difference(Telling().tell(ours), Telling().tell(theirs))
    assert found is None, found


def sweeping(saver: Facade, limits: Mapping[str, Any]) -> Callable[[], object]:
    return partial(saver.call, "sweep", **limits)


def run_of(play: Play, durability: Durability) -> Drive:
    """Runs a graph without a break."""
    return lambda app, value: play.invoke(app, value, thread(), durability=durability)


def with_sweeps_between(saver: Facade, limits: Mapping[str, Any], durability: Durability) -> Drive:
    """Runs a graph with a sweep after each of its steps."""

    def drive(app: App, value: Any) -> Any:
        found: list[Any] = []
        for state in app.stream(value, thread(), stream_mode="values", durability=durability):
            found.append(state)
            saver.raw_saver.sweep(**limits)
        return found[-1]

    async def adrive(app: App, value: Any) -> Any:
        found: list[Any] = []
        async for state in app.astream(value, thread(), stream_mode="values", durability=durability):
            found.append(state)
            await saver.raw_saver.asweep(**limits)
        return found[-1]

    return (lambda app, value: saver.loop.run(adrive(app, value))) if saver.is_async else drive


LIMITS: tuple[dict[str, Any], ...] = ({"keep_last": 1}, {"keep_last": 2}, {"keep_last": 5}, {"older_than": 0})


def check_kept(saver: Facade, raw: redis.Redis, limits: Mapping[str, Any], app: App, full: list[Any]) -> None:
    """The newest of what a thread had is there as it was, and nothing else but what that needs."""
    play = Play(saver)
    saver.call("sweep", **limits)
    kept = play.history(app, thread())
    assert_alike(kept, full[: limits.get("keep_last", 1)])
    for snapshot in kept:
        assert play.state(app, snapshot.config).values == snapshot.values
    assert_nothing_needless(saver, raw)


def assert_nothing_needless(saver: Facade, raw: redis.Redis) -> None:
    """No call of a subgraph whose root checkpoint is gone, no writes from before all records, no blob without one."""
    heads = {t.config["configurable"]["checkpoint_ns"]: t.metadata for t in reversed(saver.list(thread()))}
    roots = {t.checkpoint["id"] for t in saver.list(thread(checkpoint_ns=""))}
    assert roots.issuperset(head["parents"][""] for ns, head in heads.items() if ":" in ns)
    reader: Any = raw
    keys = thread_keys(b"ckpt", "t")
    records = {name: record for name, record in reader.hgetall(keys.checkpoints).items() if US in name}
    assert {name.split(US)[0] for name in records} == set(map(quote, heads))
    assert min(name.split(US)[1] for name in records) <= min(name.split(US)[1] for name in reader.hkeys(keys.writes))
    refs = [(name, ref) for name, record in records.items() for ref in decode_header(record, "").refs]
    assert {*reader.hkeys(keys.blobs)} == {name.split(US)[0] + US + ref for name, ref in refs}


@pytest.mark.parametrize(
    ("server", "limits", "durability"),
    [
        *((REAL_KINDS[0], limits, durability) for limits, durability in zip(LIMITS, cycle(DURABILITIES), strict=False)),
        *((kind, LIMITS[-1], "sync") for kind in ("fake", *REAL_KINDS[1:])),
    ],
    ids=str,
    indirect=["server"],
)
def test_a_delta_thread_swept_after_each_step_lives_as_if_it_were_not(
    saver: Facade, raw: redis.Redis, limits: Mapping[str, Any], durability: Durability
) -> None:
    play = Play(saver)
    app = play.app(busy(Often))
    told, full = never_pruned(Often, True, 5, durability)
    assert_alike(lived(play, app, 5, with_sweeps_between(saver, limits, durability)), told)
    check_kept(saver, raw, limits, app, full)


@on_one_server
@pytest.mark.parametrize(
    ("schema", "count", "limits", "durability"),
    [
        *((Often, 5, LIMITS[0], durability) for durability in DURABILITIES),
        (Often, 5, LIMITS[-1], "async"),
        (Rarely, 13, LIMITS[0], DURABILITIES[-1]),
    ],
)
def test_a_delta_thread_swept_by_its_own_nodes_lives_as_if_it_were_not(
    saver: Facade, raw: redis.Redis, schema: Any, count: int, limits: Mapping[str, Any], durability: Durability
) -> None:
    """Of the channels with rare snapshots one comes to its first; the other is rebuilt from the first write on."""
    play = Play(saver)
    app = play.app(busy(schema, None, sweeping(saver, limits)))
    told, full = never_pruned(schema, None, count, durability)
    assert_alike(lived(play, app, count, run_of(play, durability)), told)
    check_kept(saver, raw, limits, app, full)


@on_one_server
@in_each_durability
def test_a_run_from_an_old_checkpoint_is_never_read_as_less_though_its_thread_is_swept(
    saver: Facade, durability: Durability
) -> None:
    """The run is the only one that still needs the old checkpoint, which is not among the newest."""
    sweeps: list[Callable[[], object]] = []

    def end(play: Play, *while_it_runs: Callable[[], object]) -> Any:
        app = play.app(busy(Often, None, lambda: [sweep() for sweep in sweeps]))
        lived(play, app, 5, run_of(play, "sync"))
        old = [s for s in play.history(app, thread()) if s.next == ("inner",)][-1]
        sweeps.extend(while_it_runs)
        play.invoke(app, None, old.config, durability=durability)
        found = play.invoke(app, Command(resume="again"), thread(), durability=durability)
        return found, play.state(app, thread()).values

    whole = end(Play(saver, InMemorySaver()))
    try:
        found = end(Play(saver), sweeping(saver, {"keep_last": 1}))
    except CheckpointerError:
        return
    assert found == whole


@on_one_server
def test_a_reader_whose_checkpoint_is_swept_away_meanwhile_never_reads_less(
    saver: Facade, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LangGraph asks for a checkpoint, then for what its deltas are made of."""
    play, name = Play(saver), "aget_delta_channel_history" if saver.is_async else "get_delta_channel_history"
    ask = getattr(saver.raw_saver, name)

    def meanwhile(**kwargs: Any) -> Any:
        with RedisSaver(server.url) as other:
            abc(Short).compile(checkpointer=other).invoke({"log": ["next"]}, thread())
            other.sweep(keep_last=1)
        return ask(**kwargs)

    app = play.app(abc(Short))
    play.invoke(app, {"log": ["in"]}, thread())
    monkeypatch.setattr(saver.raw_saver, name, meanwhile)
    try:
        log = play.state(app, thread()).values["log"]
    except CheckpointerError:
        return
    assert log in (["in", "a", "b", "c"], ["in", "a", "b", "c", "next", "a", "b", "c"])


def work(job: int) -> Any:
    return {"done": [(job, interrupt(job)) if job == 1 else job]}


GRAPHS: dict[str, tuple[Callable[[Play], App], Any]] = {
    "fan-out": (lambda play: play.app(fan_out(work)), {"jobs": [0, 1, 2]}),
    "subgraphs": (lambda play: play.app(nested()), {"log": ["in"]}),
    "subgraphs with memory": (lambda play: play.app(nested(True, True)), {"log": ["in"]}),
    "deltas": (lambda play: play.app(busy(Often, None)), {"log": ["in"]}),
    "functional": (lambda play: essay(play, Counter()), "cats"),
}
"""Graphs that ask one question, with an input."""


def all_of_them(play: Play, durability: Durability) -> dict[str, App]:
    """Each graph asks and is answered on a thread of its own, while one more waits all the time."""
    apps = {name: make(play) for name, (make, _) in GRAPHS.items()}
    waiting = play.app(nested())
    play.invoke(waiting, {"log": ["waits"]}, thread("waits"), durability=durability)
    for name, (_, value) in GRAPHS.items():
        app = apps[name]
        for n in range(3):
            play.invoke(app, value, thread(name), durability=durability)
            play.state(app, thread(name), subgraphs=True)
            play.invoke(app, Command(resume=n), thread(name), durability=durability)
            play.state(app, thread(name))
    play.invoke(waiting, Command(resume="late"), thread("waits"), durability=durability)
    return apps


@on_one_server
@pytest.mark.parametrize(
    ("colour", "keep_last", "durability"),
    [
        ("sync", 1, "sync"),
        ("sync", 2, "async"),
        ("sync", 10, "exit"),
        ("async", 1, "exit"),
        ("async", 2, "async"),
        ("async", 10, "sync"),
    ],
    indirect=["colour"],
)
def test_a_saver_that_keeps_few_answers_as_one_that_keeps_all(
    make_saver: MakeSaver, keep_last: int, durability: Durability
) -> None:
    saver = make_saver(keep_last=keep_last)
    oracle, ours = Play(saver, InMemorySaver()), Play(saver)
    everything, apps = all_of_them(oracle, durability), all_of_them(ours, durability)
    assert_alike(ours.notes, oracle.notes)
    for name, app in apps.items():
        sizes = Counter(t.config["configurable"]["checkpoint_ns"] for t in ours.stored(name))
        assert 0 < max(sizes.values()) <= keep_last + slack(keep_last)
        kept = ours.history(app, thread(name), limit=keep_last)
        full = oracle.history(everything[name], thread(name), limit=keep_last)
        assert_alike(kept, full)
        # The oldest unfinished one that is kept goes on once more.
        if unfinished := [n for n, snapshot in enumerate(kept) if snapshot.next and snapshot.values]:
            again = ours.invoke(app, None, kept[unfinished[-1]].config, durability=durability)
            told = oracle.invoke(everything[name], None, full[unfinished[-1]].config, durability=durability)
            assert_alike(again, told)


@on_one_server
def test_a_run_from_a_kept_checkpoint_finds_what_its_subgraph_remembered(saver: Facade) -> None:
    """The subgraph takes more steps than its parent."""

    def again(play: Play, *sweeps: Callable[[], object]) -> Any:
        inner = StateGraph(Remembers, input_schema=Plain, output_schema=Plain)
        inner.add_sequence([(n, lambda state: {"log": ["step"], "plain": len(state["log"])}) for n in "uvwxyz"])
        inner.add_edge(START, "u")
        app = play.app(chain(Plain, inner=inner.compile(checkpointer=True)))
        for _ in range(4):
            play.invoke(app, {"plain": 0}, thread())
        for sweep in sweeps:
            sweep()
        old = [s for s in play.history(app, thread(), limit=5) if s.next == ("inner",)][-1]
        return play.invoke(app, None, old.config)

    assert again(Play(saver), sweeping(saver, {"keep_last": 5})) == again(Play(saver, InMemorySaver())) == {"plain": 17}


CALLS = 40


def calls() -> Builder:
    """A loop that calls a subgraph again and again; the last call asks."""

    def last(state: Plain) -> Any:
        return {"plain": interrupt("?") if state["plain"] == CALLS else state["plain"]}

    inner = chain(Plain, x=lambda state: {"plain": state["plain"] + 1}, last=last).compile()
    builder = chain(Plain, inner=inner)
    builder.add_conditional_edges("inner", lambda state: "inner" if isinstance(state["plain"], int) else END)
    return builder


@on_one_server
@pytest.mark.parametrize("keep_last", [None, 2])
def test_no_call_of_a_subgraph_outlives_its_root_checkpoint(
    make_saver: MakeSaver, raw: redis.Redis, keep_last: int | None
) -> None:
    saver = make_saver(keep_last=keep_last)
    play = Play(saver)
    app = play.app(calls())
    config: RunnableConfig = {**thread(), "recursion_limit": 2 * CALLS}

    def check(most: int) -> None:
        assert 0 < len({t.config["configurable"]["checkpoint_ns"] for t in play.stored()} - {""}) <= most
        assert_nothing_needless(saver, raw)
        assert play.state(app, thread()).next == ("inner",)
        assert inside(play.state(app, thread(), subgraphs=True)).next == ("last",)

    play.invoke(app, {"plain": 0}, config)
    if keep_last is not None:
        check(keep_last + slack(keep_last))
    saver.call("sweep", keep_last=2)
    check(2)
    saver.call("sweep", older_than=0)
    check(1)
    assert play.invoke(app, Command(resume="end"), config) == {"plain": "end"}


@on_one_server
@pytest.mark.parametrize("memory", [None, True])
def test_a_thread_that_somebody_sweeps_all_the_time_lives_as_if_nobody_did(
    saver: Facade, server: Server, raw: redis.Redis, memory: bool | None
) -> None:
    play, done, sweeps = Play(saver), threading.Event(), Counter[str]()
    app = play.app(busy(Often, memory))
    told, full = never_pruned(Often, memory, 8, "async")

    def sweep() -> None:
        with RedisSaver(server.url) as other:
            while not done.is_set():
                report = other.sweep(keep_last=1)
                assert not report.failures
                sweeps["removed"] += report.checkpoints

    with ThreadPoolExecutor(1) as pool:
        somebody = pool.submit(sweep)
        try:
            assert_alike(lived(play, app, 8, run_of(play, "async")), told)
        finally:
            done.set()
        somebody.result()
    assert sweeps["removed"] > 0
    check_kept(saver, raw, {"keep_last": 1}, app, full)


@on_one_server
@pytest.mark.parametrize("keep_last", [1, 3, 5])
def test_the_newest_forks_stay_and_go_on(saver: Facade, keep_last: int) -> None:
    def play_all(play: Play, *sweeps: Callable[[], object]) -> list[Any]:
        app = play.app(busy(Often, None))
        lived(play, app, 3, run_of(play, "sync"))
        trunk = [s for s in play.history(app, thread()) if s.next == ("inner",)]
        forks = [play.update(app, s.config, {"log": [n]}, "worker") for n, s in enumerate(trunk + trunk[::-1])]
        for sweep in sweeps:
            sweep()
            newest = [str(s.config) for s in play.history(app, thread(), limit=keep_last)]
            assert newest == [str(config) for config in forks[-1 : -1 - keep_last : -1]]
            assert play.state(app, forks[-1 - keep_last]).values == {}
        told: list[Any] = []
        for fork in forks[-keep_last:]:
            told.append(play.state(app, fork).values)
            play.invoke(app, None, fork)
            told.append(play.invoke(app, Command(resume="on"), thread()))
            told.append(play.state(app, thread()))
        return told

    ours = play_all(Play(saver), sweeping(saver, {"keep_last": keep_last}))
    assert_alike(ours, play_all(Play(saver, InMemorySaver())))
