"""Flows and their drivers, with scripted replies: no server."""

from __future__ import annotations

from typing import Any

import pytest

from redis_ckpt._flow import MOST_REPAIRS, Call, Flow, Plain, Primed, Trip, Wait, arun, guarded, run
from redis_ckpt._ops.history import delta_channel_history
from redis_ckpt.errors import StorageVersionError


class NoScriptError(Exception):
    """As redis-py and valkey-py name theirs."""


GET = Call("get", "aaaa", "return 1", (b"k",), (b"x",))
SET = Call("set", "bbbb", "return 2", (b"k",), (b"y",))
LOAD_GET, LOAD_SET = Plain(("SCRIPT LOAD", "return 1")), Plain(("SCRIPT LOAD", "return 2"))


class Scripted:
    """Answers trips from a list, and remembers them."""

    def __init__(self, *answers: list[Any]) -> None:
        self.trips: list[Trip] = []
        self._answers = list(answers)

    def __call__(self, trip: Trip) -> list[Any]:
        self.trips.append(trip)
        return self._answers.pop(0)

    async def awaited(self, trip: Trip) -> list[Any]:
        return self(trip)


def both(first: Call, second: Call) -> Flow[list[Any]]:
    replies = yield [first, second]
    return list(replies)


def one(call: Call) -> Flow[Any]:
    (reply,) = yield [call]
    return reply


def test_a_flow_is_sent_the_replies_of_its_trip() -> None:
    send = Scripted([1, 2])
    assert run(Primed(both(GET, SET)), send) == [1, 2]
    assert send.trips == [[GET, SET]]


async def test_both_drivers_do_the_same() -> None:
    send = Scripted([1, 2])
    assert await arun(Primed(both(GET, SET)), send.awaited) == [1, 2]
    assert send.trips == [[GET, SET]]


def test_only_calls_of_a_forgotten_script_are_sent_again() -> None:
    send = Scripted([NoScriptError("x"), 2], ["bbbb", 1])
    assert run(Primed(both(GET, SET)), send) == [1, 2]
    assert send.trips == [[GET, SET], [LOAD_GET, GET]]


def test_a_script_that_two_calls_need_is_loaded_once() -> None:
    send = Scripted([NoScriptError("x"), NoScriptError("x")], ["aaaa", 1, 2])
    assert run(Primed(both(GET, GET)), send) == [1, 2]
    assert send.trips[1] == [LOAD_GET, GET, GET]


def test_two_scripts_are_loaded_in_one_trip() -> None:
    send = Scripted([NoScriptError("x"), NoScriptError("x")], ["aaaa", "bbbb", 1, 2])
    assert run(Primed(both(GET, SET)), send) == [1, 2]
    assert send.trips[1] == [LOAD_GET, LOAD_SET, GET, SET]


def test_what_cannot_be_repaired_is_raised() -> None:
    send = Scripted([NoScriptError("x"), 2], [RuntimeError("NOPERM"), NoScriptError("still")])
    with pytest.raises(NoScriptError, match="still"):
        run(Primed(both(GET, SET)), send)
    assert len(send.trips) == 2


def test_a_script_that_is_forgotten_again_meanwhile_is_loaded_again() -> None:
    gone = NoScriptError("x")
    send = Scripted([gone, gone], ["aaaa", "bbbb", 1, gone], ["bbbb", 2])
    assert run(Primed(both(GET, SET)), send) == [1, 2]
    assert send.trips[2] == [LOAD_SET, SET]


def test_a_script_that_is_forgotten_each_time_is_given_up() -> None:
    gone = NoScriptError("x")
    send = Scripted([gone], *(["aaaa", gone] for _ in range(20)))
    with pytest.raises(NoScriptError):
        run(Primed(one(GET)), send)
    assert len(send.trips) == 1 + MOST_REPAIRS


def test_an_error_reply_is_thrown_into_the_flow() -> None:
    def careful() -> Flow[str]:
        try:
            yield [GET]
        except RuntimeError as error:
            (reply,) = yield [SET]
            return f"{error} {reply}"
        return "no error"

    send = Scripted([RuntimeError("OOM")], [2])
    assert run(Primed(careful()), send) == "OOM 2"


def test_an_error_of_the_connection_ends_the_operation() -> None:
    def send(trip: Trip) -> list[Any]:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        run(Primed(both(GET, SET)), send)


def test_priming_takes_what_is_needed_from_the_caller_at_once() -> None:
    values = [1]

    def takes() -> Flow[int]:
        taken = values[0]
        yield [GET]
        return taken

    flow = Primed(takes())
    values[0] = 2
    assert run(flow, Scripted([None])) == 1


def test_priming_raises_what_is_wrong_before_anything_is_sent() -> None:
    def wrong() -> Flow[None]:
        raise ValueError("no thread")
        yield []

    with pytest.raises(ValueError, match="no thread"):
        Primed(wrong())


async def test_a_flow_without_trips_sends_nothing() -> None:
    def nothing() -> Flow[str]:
        return "done"
        yield []

    send = Scripted()
    assert run(Primed(nothing()), send) == "done"
    assert await arun(Primed(nothing()), send.awaited) == "done"
    assert send.trips == []


def test_a_walk_ends_where_an_ancestor_comes_again_on_another_page() -> None:
    """The script guards one page; this guards across pages."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    from redis_ckpt._expiry import Expiry
    from redis_ckpt._guards import Guards
    from redis_ckpt._known import Cache
    from redis_ckpt._ops import Store
    from redis_ckpt._recent import Recent

    config = {"configurable": {"thread_id": "t"}}
    send = Scripted(
        [[b"t", b"b", 1, b"a", 0, 0, 0]], [[b"t", b"a", 1, b"b", 0, 0, 0]], [[b"t", b"b", 1, b"a", 0, 0, 0]]
    )
    store = Store(b"p", JsonPlusSerializer(), Expiry(), Cache(0), Guards.of(None, "ignore", None), Recent())
    flow = delta_channel_history(store, config, ["x"])  # type: ignore[arg-type]
    assert run(Primed(flow), send) == {"x": {"writes": []}}
    assert len(send.trips) == 3


def test_a_walk_refuses_a_record_of_a_newer_format() -> None:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    from redis_ckpt._expiry import Expiry
    from redis_ckpt._guards import Guards
    from redis_ckpt._known import Cache
    from redis_ckpt._ops import Store
    from redis_ckpt._recent import Recent

    config = {"configurable": {"thread_id": "t"}}
    store = Store(b"p", JsonPlusSerializer(), Expiry(), Cache(0), Guards.of(None, "ignore", None), Recent())
    flow = delta_channel_history(store, config, ["x"])  # type: ignore[arg-type]
    with pytest.raises(StorageVersionError, match=r"'9'.*'1'"):
        run(Primed(flow), Scripted([[b"9..."]]))


def test_a_wait_behind_a_forgotten_script_is_repeated_once_and_not_taken_for_a_call() -> None:
    """A cluster's client may answer both with the same error."""
    lost, wait = NoScriptError("No matching script"), Wait(("WAIT", b"1", b"100"))
    call = Call("put", "sha", "text", (b"k",), ())

    def flow() -> Flow[list[Any]]:
        return (yield [call, wait])

    running = guarded(flow())
    assert next(running) == [call, wait]
    assert running.send([lost, lost]) == [Plain(("SCRIPT LOAD", "text")), call, wait]
    with pytest.raises(StopIteration) as ended:
        running.send(["sha", 1, 1])
    assert ended.value.value == [1, 1]


def test_an_error_of_a_wait_is_its_answer() -> None:
    wait, error = Wait(("WAIT", b"1", b"100")), Exception("no")
    call = Call("put", "sha", "text", (b"k",), ())

    def flow() -> Flow[list[Any]]:
        return (yield [call, wait])

    running = guarded(flow())
    next(running)
    with pytest.raises(StopIteration) as ended:
        running.send([1, error])
    assert ended.value.value == [1, error]
