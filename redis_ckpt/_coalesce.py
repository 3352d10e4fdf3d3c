"""Coalescing: concurrent calls of one event loop share pipelines on few connections.

Goals: a lone call goes out at once; many calls cost few round trips; no reply ever reaches another caller.

Theory of operation. An `Entry` is one caller's trip. It is sent as a whole or not at all, and its replies come
together. While a connection is idle and nobody waits, the caller itself carries its entry there and back (a batch of
one: no task, no timer, no wait). Otherwise the entry is queued. Whoever comes back with a connection while entries are
queued starts a turn: a task that takes a batch from the head of the queue, carries it, and goes on until the queue is
empty. So nothing ever waits for company, and the busier the connections, the larger the batches. A turn takes entries
in the order in which they came. How a batch gets to the server and back is a carrier's matter: see `_carriers`.

Rule 1: a caller that is cancelled before its entry is taken is never sent. One that is cancelled later is left alone:
        the turn reads its reply and drops it. Only a caller that carries its own entry breaks its connection off,
        and there is nobody else on it.
Rule 2: an entry is answered as soon as its own replies are in. A connection that breaks later does not take them back:
        only what is unanswered is sent again, by the retry policy of the client. Every script is safe to repeat.
Rule 3: what still fails is raised in every caller that is unanswered, in each as an exception of its own. Outcomes
        travel as results of futures, so one that nobody fetches any more is not reported as lost.
Rule 4: what is queued is bounded in bytes. Who finds no room waits outside, unpacked, and is let in in order; an entry
        larger than the bound goes in alone. A batch is bounded too, so that large values do not hold up the rest.
Rule 5: a SCRIPT LOAD that stands in one batch several times is sent once, and its reply is everybody's: after the
        server has forgotten its scripts, all callers of a batch come back with the same text.
Rule 6: a wait for acknowledgements is sent once as well, at the end of the batch, for it covers all that stands before
        it. It holds its connection up, so trips with one have a queue and connections of their own: see `Lanes`.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import hiredis
from redis.exceptions import ConnectionError as RedisConnectionError

from redis_ckpt._flow import Call, Command, Plain, Reply, Trip, Wait, words
from redis_ckpt.errors import ClosedError


@dataclass(frozen=True)
class Pipelining:
    """How concurrent calls of one event loop share connections.

    Args:
        connections: Connections of one event loop; on a cluster each node has one. Two let a batch travel while the
            replies of another are worked on.
        max_batch_commands: Commands in one round trip.
        max_batch_bytes: Bytes in one round trip; a larger command goes alone.
        max_queued_bytes: Bytes that may wait to be sent, over all callers of one event loop (on a cluster, of each
            node). Further callers wait for room, in order.

    Raises:
        TypeError: A value is not an int.
        ValueError: A value is not positive.
    """

    connections: int = 2
    max_batch_commands: int = 256
    max_batch_bytes: int = 2**20
    max_queued_bytes: int = 64 * 2**20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{field.name} of Pipelining must be an int, not {value!r}")
            if value < 1:
                raise ValueError(f"{field.name} of Pipelining must be positive, not {value!r}")


def pack(command: Command) -> bytes:
    """The command as it goes over the wire. hiredis does it in C: redis-py takes 60 us for 20 arguments."""
    parts = words(command)
    if type(command) is not Call:
        name = str(parts[0])
        if " " in name:  # a command of two words, such as SCRIPT LOAD
            parts = (*name.split(), *parts[1:])
    packed: bytes = hiredis.pack_command(parts)
    return packed


def is_load(command: Command) -> bool:
    """Whether the command is a SCRIPT LOAD."""
    return type(command) is Plain and command.words[0] == "SCRIPT LOAD"


class Entry:
    """One caller's trip, on its way."""

    __slots__ = ("_outcome", "packed", "size", "trip", "waiter")

    def __init__(self, trip: Trip) -> None:
        self.trip = trip
        self.packed: Sequence[bytes] = [pack(command) for command in trip]
        self.size = sum(map(len, self.packed))
        self.waiter: asyncio.Future[None] | None = None  # none if the caller carries the entry itself
        self._outcome: list[Reply] | Exception | None = None

    @property
    def answered(self) -> bool:
        """Whether the outcome is there."""
        return self._outcome is not None

    @property
    def abandoned(self) -> bool:
        """Whether its caller is gone."""
        return self.waiter is not None and self.waiter.done()

    def answer(self, outcome: list[Reply] | Exception) -> None:
        """Set the outcome, once, and wake the caller."""
        if self._outcome is None:
            self._outcome = outcome
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def result(self) -> list[Reply]:
        """The replies.

        Raises:
            Exception: What kept them from coming.
        """
        if isinstance(self._outcome, Exception):
            raise _own(self._outcome)
        assert self._outcome is not None, "an entry came back unanswered"
        return self._outcome


def _own(error: Exception) -> Exception:
    """A copy: callers that raise one exception together would write into each other's traceback."""
    try:
        twin = copy.copy(error)
    except Exception:  # a class whose constructor takes something else
        return error
    twin.__cause__ = error.__cause__
    return twin


def is_shared(command: Command) -> bool:
    """Whether equal commands of a batch are sent once: its reply is everybody's (rules 5 and 6)."""
    return type(command) is Wait or is_load(command)


def on_the_wire(entries: Sequence[Entry]) -> Iterator[tuple[Command, bytes]]:
    """The commands of a batch in the order of their replies: what is shared only once, what waits at the end."""
    loads: set[bytes] = set()
    waits: dict[bytes, Command] = {}
    for entry in entries:
        for command, packed in zip(entry.trip, entry.packed, strict=True):
            if type(command) is Wait:
                waits[packed] = command
                continue
            if is_load(command):
                if packed in loads:
                    continue
                loads.add(packed)
            yield command, packed
    for packed, command in waits.items():
        yield command, packed


class Carrier(Protocol):
    """What takes batches to the server."""

    async def carry(self, batch: Sequence[Entry]) -> None:
        """Send what is unanswered and answer each entry when its replies are in.

        Raises:
            Exception: What left entries unanswered. Nothing that was not read may be left on a connection then.
        """

    def close(self) -> None:
        """Begin nothing more."""


class Coalescer:
    """The queue of one event loop for one server: see the top of this module. Not for several threads."""

    def __init__(self, carrier: Carrier, limits: Pipelining, connections: int, owner: str) -> None:
        self._carrier = carrier
        self._limits = limits
        self._owner = owner
        self._idle = connections
        self._queue: deque[Entry] = deque()
        self._queued_bytes = 0
        self._outside: deque[Entry] = deque()  # waits for room; only ever non-empty while the queue is
        self._turns: set[asyncio.Task[None]] = set()
        self._closed = False

    async def send(self, trip: Trip) -> list[Reply]:
        """One round trip, shared with others where others are there.

        Raises:
            ClosedError: The queue was closed before the trip was sent.
        """
        if self._closed:
            raise ClosedError(self._owner)
        entry = Entry(trip)
        if self._idle and not self._queue:
            await self._carry_alone(entry)
        else:
            await self._wait_in_queue(entry)
        return entry.result()

    async def _carry_alone(self, entry: Entry) -> None:
        self._idle -= 1
        try:
            await self._carrier.carry([entry])
        finally:
            self._idle += 1
            self._start_turn()

    async def _wait_in_queue(self, entry: Entry) -> None:
        entry.waiter = asyncio.get_running_loop().create_future()
        if self._outside or not self._has_room(entry):
            entry.packed = ()  # what waits outside takes no room
            self._outside.append(entry)
        else:
            self._let_in(entry)
        try:
            await entry.waiter
        except asyncio.CancelledError:
            self._withdraw(entry)
            raise

    def _has_room(self, entry: Entry) -> bool:
        return not self._queue or self._queued_bytes + entry.size <= self._limits.max_queued_bytes

    def _let_in(self, entry: Entry) -> None:
        self._queue.append(entry)
        self._queued_bytes += entry.size

    def _let_others_in(self) -> None:
        while self._outside and self._has_room(self._outside[0]):
            entry = self._outside.popleft()
            if not entry.abandoned:
                entry.packed = [pack(command) for command in entry.trip]
                self._let_in(entry)

    def _withdraw(self, entry: Entry) -> None:
        """Take a cancelled caller's entry out, if it has not been sent (rule 1)."""
        if entry in self._outside:
            self._outside.remove(entry)
        elif entry in self._queue:
            self._queue.remove(entry)
            self._queued_bytes -= entry.size
            self._let_others_in()

    def _take(self) -> list[Entry]:
        """The next batch: from the head of the queue, as many as the bounds allow, one at least."""
        batch: list[Entry] = []
        commands = size = 0
        while self._queue:
            entry = self._queue[0]
            commands += len(entry.trip)
            size += entry.size
            if batch and (commands > self._limits.max_batch_commands or size > self._limits.max_batch_bytes):
                break
            self._queue.popleft()
            self._queued_bytes -= entry.size
            if entry.abandoned:  # cancelled, but it has not run since
                commands -= len(entry.trip)
                size -= entry.size
            else:
                batch.append(entry)
        self._let_others_in()
        return batch

    def _start_turn(self) -> None:
        if not self._queue or not self._idle or self._closed:
            return
        self._idle -= 1
        # without the context variables of the caller that happens to be here: the batch is of many
        task = contextvars.Context().run(asyncio.get_running_loop().create_task, self._turn())
        self._turns.add(task)
        task.add_done_callback(self._turns.discard)

    async def _turn(self) -> None:
        try:
            while batch := self._take():
                self._start_turn()  # another idle connection may take what was left
                await self._carry(batch)
        finally:
            self._idle += 1
            while self._queue and self._queue[0].abandoned:  # when a loop ends everybody is cancelled
                self._queued_bytes -= self._queue.popleft().size
            self._start_turn()

    async def _carry(self, batch: list[Entry]) -> None:
        try:
            await self._carrier.carry(batch)
        except Exception as error:
            for entry in batch:
                entry.answer(error)
        except BaseException:  # this task is cancelled: the loop ends, or the queue is closed
            for entry in batch:
                if self._closed:
                    entry.answer(cut_off(self._owner))
                elif entry.waiter is not None:
                    entry.waiter.cancel()
            raise

    async def close(self) -> None:
        """Send nothing more: what is queued raises ClosedError, what is under way a ConnectionError."""
        self._closed = True
        self._carrier.close()
        for entry in (*self._queue, *self._outside):
            entry.answer(ClosedError(self._owner))
        self._queue.clear()
        self._outside.clear()
        self._queued_bytes = 0
        turns = list(self._turns)
        for turn in turns:
            turn.cancel()
        await asyncio.gather(*turns, return_exceptions=True)


class Lanes:
    """Two queues for one server: what waits for acknowledgements holds nothing else up. Not for several threads."""

    def __init__(self, make: Callable[[], Coalescer]) -> None:
        self._make = make
        self._plain = make()
        self._waiting: Coalescer | None = None

    def send(self, trip: Trip) -> Coroutine[Any, Any, list[Reply]]:
        """One round trip: see `Coalescer`."""
        if type(trip[-1]) is not Wait:
            return self._plain.send(trip)
        if self._waiting is None:
            self._waiting = self._make()
        return self._waiting.send(trip)

    async def close(self) -> None:
        """Send nothing more: see `Coalescer`."""
        await self._plain.close()
        if self._waiting is not None:
            await self._waiting.close()


def cut_off(owner: str) -> Exception:
    """What a caller is told whose trip was under way when its saver was closed."""
    return RedisConnectionError(f"{owner} was closed while this call was under way: it may or may not have been done")
