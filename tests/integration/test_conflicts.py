"""on_conflict="raise": two runs on one thread cannot fork it silently; forks on purpose stay what they are."""

from __future__ import annotations

import copy
import operator
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, StateUpdate, interrupt
from typing_extensions import TypedDict

from redis_ckpt import ConflictError
from redis_ckpt._guards import ForkedId
from tests.integration.graphs import DURABILITIES, Builder, Durability, Play, thread
from tests.savers import IDS, Facade, MakeSaver, cfg, ids, put, values


class Log(TypedDict):
    log: Annotated[list[Any], operator.add]


def ab() -> Builder:
    builder = StateGraph(Log)
    builder.add_sequence([(name, lambda state, name=name: {"log": [name]}) for name in "ab"])
    builder.add_edge(START, "a")
    builder.add_edge("b", END)
    return builder


@pytest.fixture
def strict(make_saver: MakeSaver) -> Facade:
    return make_saver(on_conflict="raise")


def test_a_checkpoint_whose_parent_is_not_the_newest_is_refused_and_nothing_is_stored(
    strict: Facade, make_saver: MakeSaver
) -> None:
    put(strict, 1, a=1)
    put(strict, 2, parent=1, a=2)
    for source in ("loop", "input"):
        with pytest.raises(ConflictError) as caught:
            put(strict, 3, parent=1, a=3, b="new", meta={"source": source})
        error = caught.value
        told = (error.thread_id, error.checkpoint_ns, error.checkpoint_id, error.parent_id, error.newest_id)
        assert told == ("t", "", IDS[3], IDS[1], IDS[2])
        twin = pickle.loads(pickle.dumps(error))
        assert (str(twin), twin.newest_id) == (str(error), IDS[2])
    assert ids(strict.list(cfg())) == [IDS[2], IDS[1]]
    for source in ("update", "fork"):
        put(make_saver(on_conflict="raise"), 3, t=source, a=0)
        put(strict, 1, t=source, a=3, meta={"source": source})
    put(make_saver(), 3, parent=1, a=3)  # one that does not look is let in


def test_two_beginnings_of_one_namespace_are_a_conflict_and_of_two_are_none(strict: Facade) -> None:
    put(strict, 1, a=1)
    put(strict, 1, ns="sub:1", a=1)
    for ns in ("", "sub:1"):
        with pytest.raises(ConflictError, match="when there was none"):
            put(strict, 2, ns=ns, a=2)


def test_a_repeated_put_is_no_conflict(strict: Facade) -> None:
    """A lost reply, or the end of a run in which only the last checkpoint is stored."""
    put(strict, 1, a=1)
    put(strict, 2, parent=1, a=2)
    put(strict, 2, parent=1, a=2)
    put(strict, 3, parent=2, a=3)
    put(strict, 2, parent=1, a="again", vers={"a": "v"})
    assert [values(t)["a"] for t in strict.list(cfg())] == [3, "again", 1]


def test_a_thread_that_was_deleted_under_a_run_is_a_conflict(strict: Facade) -> None:
    put(strict, 1, a=1)
    strict.delete_thread("t")
    with pytest.raises(ConflictError, match="there is none any more"):
        put(strict, 2, parent=1, a=2)
    assert strict.list(cfg()) == []


def test_only_one_of_many_writers_goes_on_from_a_checkpoint(strict: Facade) -> None:
    put(strict, "begin", a=0)

    def go_on(n: int) -> bool:
        try:
            put(strict, f"end-{n:02}", parent="begin", a=n)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(go_on, range(16)))
    assert won.count(True) == 1
    assert ids(strict.list(cfg())) == [f"end-{won.index(True):02}", "begin"]


def in_a_thread(work: Any) -> Any:
    """The outcome of a call, or what it raised, from a thread that knows nothing of a graph around it."""
    outcome: list[Any] = []

    def call() -> None:
        try:
            outcome.append(work())
        except Exception as error:
            outcome.append(error)

    worker = threading.Thread(target=call)
    worker.start()
    worker.join()
    return outcome[0]


@pytest.mark.parametrize("durability", DURABILITIES)
def test_of_two_requests_at_once_one_is_told(strict: Facade, durability: Durability) -> None:
    """The second comes while the first is in its node: it is the slow one, then, that is told, or the second."""
    play, told = Play(strict), list[Any]()

    def slow(state: Log) -> Any:
        told.append(in_a_thread(lambda: play.invoke(second, {"log": ["2"]}, thread(), durability=durability)))
        return {"log": ["slow"]}

    builder = StateGraph(Log)
    builder.add_node("slow", slow)
    builder.add_edge(START, "slow")
    first, second = play.app(builder), play.app(ab())
    told.append(in_a_thread(lambda: play.invoke(first, {"log": ["1"]}, thread(), durability=durability)))
    assert [isinstance(outcome, ConflictError) for outcome in told].count(True) == 1
    assert lines(strict) == 1
    retried = play.invoke(second, {"log": ["3"]}, thread())  # on what the other has left
    assert retried["log"][-3:] == ["3", "a", "b"]


def test_a_question_that_two_people_answer_is_answered_once(strict: Facade) -> None:
    play, told = Play(strict), list[Any]()

    def ask(state: Log) -> Any:
        answer = interrupt("?")
        if answer == "slow":
            told.append(in_a_thread(lambda: play.invoke(app, Command(resume="quick"), thread())))
        return {"log": [answer]}

    builder = StateGraph(Log)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    app = play.app(builder)
    play.invoke(app, {"log": []}, thread())
    told.append(in_a_thread(lambda: play.invoke(app, Command(resume="slow"), thread())))
    assert [isinstance(outcome, ConflictError) for outcome in told].count(True) == 1
    assert lines(strict) == 1


def lines(saver: Facade) -> int:
    """How many lines of descent end in a thread: 1 if nobody has forked it."""
    found = saver.list(cfg())
    parents = {t.parent_config["configurable"]["checkpoint_id"] for t in found if t.parent_config}
    return len([t for t in found if t.checkpoint["id"] not in parents])


@pytest.mark.parametrize("durability", DURABILITIES)
def test_time_travel_and_corrections_are_no_conflicts(strict: Facade, durability: Durability) -> None:
    play = Play(strict)
    app = play.app(ab())
    play.invoke(app, {"log": ["in"]}, thread(), durability="sync")
    oldest, *_ = [s for s in play.history(app, thread()) if s.next == ("a",)]
    again = play.invoke(app, None, oldest.config, durability=durability)
    assert again["log"] == ["in", "a", "b"]
    other = play.invoke(app, {"log": ["else"]}, oldest.config, durability=durability)
    assert other["log"] == ["in", "else", "a", "b"]
    assert lines(strict) == 3
    corrected = play.update(app, oldest.config, {"log": ["corrected"]}, as_node="a")
    assert play.invoke(app, None, corrected, durability=durability)["log"] == ["in", "corrected", "b"]
    play.update(app, thread(), {"log": ["more"]})
    play.bulk(app, thread(), [[StateUpdate({"log": ["bulk"]}, "a")], [StateUpdate({"log": ["bulk"]}, "b")]])
    play.bulk(app, oldest.config, [[StateUpdate({"log": ["new input"]}, "__input__")]])
    assert play.invoke(app, None, thread(), durability=durability)["log"][:2] == ["in", "new input"]


def test_a_run_from_an_older_checkpoint_conflicts_with_what_comes_after_it_was_read(strict: Facade) -> None:
    for i in (1, 2):
        put(strict, i, parent=i - 1 or None, a=i)
    read = strict.get_tuple(cfg("t", "", IDS[1]))
    assert read is not None
    again = strict.get_tuple(read.config)
    assert again is not None
    fork = again.config["configurable"]["checkpoint_id"]
    assert (fork, type(fork), fork.newest_id) == (IDS[1], ForkedId, IDS[2])
    for twin in (pickle.loads(pickle.dumps(fork)), copy.deepcopy(fork)):
        assert (twin, twin.newest_id) == (IDS[1], IDS[2])
    put(strict, 3, parent=2, a=3)
    with pytest.raises(ConflictError):
        put(strict, 4, parent=fork, a=4)
    newest = strict.get_tuple(cfg("t", "", IDS[3]))
    assert newest is not None
    assert type(newest.config["configurable"]["checkpoint_id"]) is str  # that was no step back
    late = strict.get_tuple(cfg("t", "", IDS[1]))
    assert late is not None
    put(strict, 4, parent=late.config["configurable"]["checkpoint_id"], a=4)
    assert lines(strict) == 2


def test_subgraphs_sends_and_their_replays_are_no_conflicts(strict: Facade) -> None:
    inner = StateGraph(Log)
    inner.add_node("deep", lambda state: {"log": ["deep", interrupt("?")]})
    inner.add_edge(START, "deep")
    builder = StateGraph(Log)
    builder.add_node("start", lambda state: {})
    builder.add_node("inner", inner.compile(checkpointer=True))
    builder.add_node("sent", lambda state: {"log": [state["n"]]})
    builder.add_conditional_edges("start", lambda state: [Send("sent", {"n": n}) for n in range(3)], ["sent"])
    builder.add_edge(START, "start")
    builder.add_edge("start", "inner")
    play = Play(strict)
    app = play.app(builder)
    for _ in range(2):
        play.invoke(app, {"log": []}, thread())
        play.invoke(app, Command(resume="yes"), thread())
    for snapshot in play.history(app, thread()):
        play.invoke(app, None, snapshot.config)
        play.invoke(app, Command(resume="again"), thread())
