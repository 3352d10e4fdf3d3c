"""Coalescing by its rules: who is sent with whom, who waits, what becomes of the cancelled. No server is reached."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from redis_ckpt import ClosedError
from redis_ckpt._coalesce import Coalescer, Entry, Pipelining, on_the_wire, pack
from redis_ckpt._flow import Call, Plain, Scan, Trip

LOAD = Plain(("SCRIPT LOAD", "return 1"))


def call(name: str, size: int = 0) -> Call:
    return Call("x", "0" * 40, "return 1", (name.encode(),), (b"v" * size,))


def name_of(entry: Entry) -> str:
    command = entry.trip[-1]
    assert isinstance(command, Call)
    return command.keys[0].decode()


class Scripted:
    """A carrier whose batches are answered when the test says so: each call with its own name."""

    def __init__(self) -> None:
        self.under_way: list[tuple[Sequence[Entry], asyncio.Future[None]]] = []
        self.batches: list[list[str]] = []
        self.closed = False

    async def carry(self, batch: Sequence[Entry]) -> None:
        self.batches.append([name_of(entry) for entry in batch])
        gate = asyncio.get_running_loop().create_future()
        self.under_way.append((batch, gate))
        await gate
        for entry in batch:
            entry.answer([name_of(entry)])

    def close(self) -> None:
        self.closed = True

    def let_go(self, n: int = 0, error: Exception | None = None) -> None:
        _, gate = self.under_way.pop(n)
        if error is None:
            gate.set_result(None)
        else:
            gate.set_exception(error)


def queue(connections: int = 1, **limits: int) -> tuple[Coalescer, Scripted]:
    carrier = Scripted()
    return Coalescer(carrier, Pipelining(connections=connections, **limits), connections, "Saver"), carrier


def start(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def started(line: Coalescer, *names: str, size: int = 0) -> list[asyncio.Task[Any]]:
    tasks = [start(line.send([call(name, size)])) for name in names]
    await settle()
    return tasks


async def finish(carrier: Scripted, tasks: Sequence[asyncio.Task[Any]]) -> list[Any]:
    """Answer all that comes, and see that nothing is left behind."""
    while not all(task.done() for task in tasks):
        assert carrier.under_way, "nothing is under way, and callers wait"
        carrier.let_go()
        await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    gc.collect()  # an error that nobody fetched would be reported now
    return [None if task.cancelled() else task.exception() or task.result() for task in tasks]


async def test_a_lone_call_is_carried_by_its_caller_at_once() -> None:
    line, carrier = queue()
    lone = line.send([call("a")])
    lone.send(None)  # one step, without any loop's help
    assert carrier.batches == [["a"]]
    lone.close()


async def test_calls_that_come_meanwhile_share_the_next_trip_in_order() -> None:
    line, carrier = queue()
    tasks = await started(line, *"abcdef")
    assert carrier.batches == [["a"]]
    assert await finish(carrier, tasks) == [[name] for name in "abcdef"]
    assert carrier.batches == [["a"], ["b", "c", "d", "e", "f"]]


async def test_every_connection_takes_part() -> None:
    line, carrier = queue(connections=3, max_batch_commands=2)
    tasks = await started(line, *"abcdefgh")
    assert carrier.batches == [["a"], ["b"], ["c"]]
    carrier.let_go(1)
    await settle()
    assert carrier.batches[3:] == [["d", "e"]]
    carrier.let_go(0)
    await settle()
    assert carrier.batches[4:] == [["f", "g"]]
    assert await finish(carrier, tasks) == [[name] for name in "abcdefgh"]


async def test_connections_that_became_idle_together_share_what_waits() -> None:
    line, carrier = queue(connections=2, max_batch_commands=2)
    tasks = await started(line, *"abcdef")
    carrier.let_go()
    carrier.let_go()
    await settle()
    assert sorted(carrier.batches[2:]) == [["c", "d"], ["e", "f"]]
    await finish(carrier, tasks)


async def test_a_batch_is_bounded_in_commands_and_a_trip_is_never_split() -> None:
    line, carrier = queue(max_batch_commands=3)
    first = await started(line, "a")
    pairs = [start(line.send([call("x"), call(name)])) for name in "bc"]
    four = start(line.send([*[call("x")] * 3, call("d")]))
    await settle()
    await finish(carrier, [*first, *pairs, four])
    assert carrier.batches == [["a"], ["b"], ["c"], ["d"]]


async def test_a_batch_is_bounded_in_bytes_and_a_larger_command_goes_alone() -> None:
    line, carrier = queue(max_batch_bytes=1000)
    tasks = await started(line, "a")
    for name, size in (("b", 300), ("c", 300), ("d", 5000), ("e", 300), ("f", 900)):
        tasks += await started(line, name, size=size)
    await finish(carrier, tasks)
    assert carrier.batches == [["a"], ["b", "c"], ["d"], ["e"], ["f"]]


async def test_what_is_queued_is_bounded_and_others_wait_outside_in_order() -> None:
    line, carrier = queue(max_queued_bytes=1000, max_batch_commands=1)
    tasks = await started(line, "a")
    tasks += await started(line, *"bcdef", size=400)
    tasks += await started(line, "g")
    assert [name_of(entry) for entry in line._queue] == ["b", "c"]
    assert [name_of(entry) for entry in line._outside] == ["d", "e", "f", "g"]
    assert all(not entry.packed for entry in line._outside)
    assert line._queued_bytes <= 1000
    assert await finish(carrier, tasks) == [[name] for name in "abcdefg"]
    assert carrier.batches == [[name] for name in "abcdefg"]
    assert line._queued_bytes == 0


async def test_an_entry_larger_than_the_bound_is_let_in_alone() -> None:
    line, carrier = queue(max_queued_bytes=100)
    tasks = await started(line, *"abc", size=5000)
    assert (len(line._queue), len(line._outside)) == (1, 1)
    assert await finish(carrier, tasks) == [["a"], ["b"], ["c"]]


async def test_who_is_cancelled_before_its_turn_is_not_sent_and_makes_room() -> None:
    line, carrier = queue(max_queued_bytes=1000)
    tasks = await started(line, "a")
    tasks += await started(line, *"bcdef", size=400)
    tasks[1].cancel()  # queued
    tasks[4].cancel()  # outside
    await settle()
    assert [name_of(entry) for entry in (*line._queue, *line._outside)] == ["c", "d", "f"]
    assert len(line._queue) == 2
    assert await finish(carrier, tasks) == [["a"], None, ["c"], ["d"], None, ["f"]]
    assert [name for batch in carrier.batches for name in batch] == ["a", "c", "d", "f"]


async def test_who_is_cancelled_in_the_moment_of_its_turn_is_not_sent() -> None:
    line, carrier = queue()
    tasks = await started(line, *"abc")
    carrier.let_go()
    for _ in range(10):
        if line._turns:
            break
        await asyncio.sleep(0)
    assert len(line._queue) == 2  # the turn is made, but has not run
    tasks[1].cancel()
    await settle()
    assert await finish(carrier, tasks) == [["a"], None, ["c"]]
    assert carrier.batches == [["a"], ["c"]]


async def test_who_is_cancelled_under_way_is_told_at_once_and_the_others_get_their_replies() -> None:
    line, carrier = queue()
    tasks = await started(line, *"abcd")
    carrier.let_go()
    await settle()
    tasks[2].cancel()
    await settle()
    assert tasks[2].cancelled()
    assert len(carrier.under_way) == 1
    assert await finish(carrier, tasks) == [["a"], ["b"], None, ["d"]]


async def test_a_batch_whose_callers_are_all_gone_is_still_read_to_its_end() -> None:
    line, carrier = queue()
    tasks = await started(line, *"abc")
    carrier.let_go()
    await settle()
    for task in tasks[1:]:
        task.cancel()
    await settle()
    assert len(carrier.under_way) == 1
    carrier.let_go(error=RedisConnectionError("gone"))
    await settle()
    assert await finish(carrier, tasks) == [["a"], None, None]
    assert await finish(carrier, await started(line, "d")) == [["d"]]


async def test_a_lone_caller_that_is_cancelled_leaves_its_place_to_the_queue() -> None:
    line, carrier = queue()
    tasks = await started(line, *"abc")
    tasks[0].cancel()
    await settle()
    carrier.under_way.pop(0)
    assert await finish(carrier, tasks) == [None, ["b"], ["c"]]


async def test_an_error_is_raised_in_every_caller_of_the_batch_and_in_no_other() -> None:
    line, carrier = queue(max_batch_commands=2)
    tasks = await started(line, *"abcde")
    carrier.let_go(error=RedisTimeoutError("slow"))
    await settle()
    carrier.let_go(error=RedisConnectionError("gone"))
    await settle()
    found = await finish(carrier, tasks)
    assert [type(item) for item in found] == [RedisTimeoutError, RedisConnectionError, RedisConnectionError, list, list]
    assert found[1] is not found[2]
    assert str(found[1]) == str(found[2]) == "gone"


async def test_who_was_answered_before_the_connection_broke_keeps_the_answer() -> None:
    line, carrier = queue()
    tasks = await started(line, *"abc")
    carrier.let_go()
    await settle()
    batch, _ = carrier.under_way[0]
    batch[0].answer(["early"])
    await settle()
    assert tasks[1].done()
    carrier.let_go(error=RedisConnectionError("gone"))
    await settle()
    found = await finish(carrier, tasks)
    assert found[:2] == [["a"], ["early"]]
    assert isinstance(found[2], RedisConnectionError)


async def test_an_error_that_cannot_be_copied_is_raised_as_it_is() -> None:
    class OddError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(one)

    line, carrier = queue()
    tasks = await started(line, *"ab")
    carrier.let_go()
    await settle()
    carrier.let_go(error=OddError(1, 2))
    await settle()
    assert isinstance((await finish(carrier, tasks))[1], OddError)


async def test_when_a_turn_is_cancelled_its_callers_are_and_the_queue_goes_on() -> None:
    line, carrier = queue(max_batch_commands=1)
    tasks = await started(line, *"abc")
    carrier.let_go()
    await settle()
    (turn,) = line._turns
    turn.cancel()
    await settle()
    carrier.under_way.pop(0)
    assert await finish(carrier, tasks) == [["a"], None, ["c"]]


async def test_closing_sends_nothing_more_and_tells_everybody() -> None:
    line, carrier = queue(max_batch_commands=1, max_queued_bytes=1000)
    tasks = await started(line, *"abcde", size=400)
    carrier.let_go()
    await settle()
    await line.close()
    found = [task.exception() for task in tasks[1:]]
    assert [type(error) for error in found] == [RedisConnectionError, ClosedError, ClosedError, ClosedError]
    assert "closed while this call was under way" in str(found[0])
    assert carrier.closed
    with pytest.raises(ClosedError):
        await line.send([call("f")])
    assert carrier.batches == [["a"], ["b"]]
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_a_script_that_is_loaded_twice_in_a_batch_goes_over_the_wire_once() -> None:
    other = Plain(("SCRIPT LOAD", "return 2"))
    trips: list[Trip] = [[LOAD, call("a")], [LOAD, other, call("b")], [Plain(("PING",)), call("c")], [other, LOAD]]
    sent = [command for command, _ in on_the_wire([Entry(trip) for trip in trips])]
    assert sent == [LOAD, call("a"), other, call("b"), Plain(("PING",)), call("c")]


@pytest.mark.parametrize(
    ("command", "packed"),
    [
        (Call("x", "ab", "", (b"k",), (b"\x00\xff", b"7")), b"EVALSHA ab 1 k \x00\xff 7"),
        (Plain(("SCRIPT LOAD", "return 1")), b"SCRIPT|LOAD|return 1"),
        (Plain(("HGET", b"a b", "é")), b"HGET|a b|" + "é".encode()),
        (Scan(None, b"p:*", 10), b"SCAN 0 MATCH p:* COUNT 10"),
        (Scan(b"7", b"p:*", 10), b"SCAN 7 MATCH p:* COUNT 10"),
    ],
)
def test_commands_are_packed_as_the_protocol_says(command: Any, packed: bytes) -> None:
    parts = packed.split(b"|" if b"|" in packed else b" ")
    assert pack(command) == b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)


@pytest.mark.parametrize("name", ["connections", "max_batch_commands", "max_batch_bytes", "max_queued_bytes"])
def test_limits_are_positive_ints(name: str) -> None:
    assert getattr(Pipelining(**{name: 1}), name) == 1
    for value in (0, -1):
        with pytest.raises(ValueError, match=name):
            Pipelining(**{name: value})
    for wrong in (True, 1.0, "1", None):
        with pytest.raises(TypeError, match=name):
            Pipelining(**{name: wrong})  # type: ignore[arg-type]
