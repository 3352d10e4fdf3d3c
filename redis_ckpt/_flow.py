"""An operation is a flow: a generator that does no I/O and yields round trips.

Rule 1: a flow yields a `Trip`, the commands of one round trip, and is sent the list of their replies.
Rule 2: an error reply of the server is thrown into the flow; errors of the connection never reach it,
        they end the whole operation.
Rule 3: what must be taken from the caller's objects is taken before the first `yield`. A driver may run
        the first step in the caller's thread and the rest elsewhere.

Two drivers run flows, one for each colour. Neither knows what an operation is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

MOST_REPAIRS = 5  # of one trip, where somebody else makes the server forget its scripts each time

T = TypeVar("T")

Reply: TypeAlias = Any
"""What the server answered, as redis-py parsed it: bytes, int, None, a list of these, or an exception."""


class Call(NamedTuple):
    """A call of a Lua script. `text` is what SCRIPT LOAD takes if the server does not know `sha`."""

    name: str
    sha: str
    text: str
    keys: tuple[bytes, ...]
    args: tuple[bytes, ...]  # numbers too: hiredis 3.5 crashes where a signal interrupts it while it writes an int


class Scan(NamedTuple):
    """One page of a walk over all keys of a pattern, on every node that holds keys."""

    cursor: Any  # opaque; None begins
    pattern: bytes
    size: int


class Plain(NamedTuple):
    """Any other command, in the form that `execute_command` takes."""

    words: tuple[bytes | str | int, ...]


class Wait(NamedTuple):
    """WAIT or WAITAOF, as the last of a trip: until others have what the calls before it have written.

    It goes over their connection. An error reply to it is not thrown into the flow: what the calls did stands.
    """

    words: tuple[str | bytes, ...]


Command: TypeAlias = "Call | Scan | Plain | Wait"
Trip: TypeAlias = "list[Command]"
Flow: TypeAlias = Generator[Trip, "list[Reply]", T]


def words(command: Command) -> tuple[Any, ...]:
    """What `execute_command` takes. The first page of a scan begins at 0; on a cluster the cursor is a node's."""
    if isinstance(command, Call):
        return ("EVALSHA", command.sha, b"%d" % len(command.keys), *command.keys, *command.args)
    if isinstance(command, (Plain, Wait)):
        return command.words
    return ("SCAN", command.cursor or 0, "MATCH", command.pattern, "COUNT", command.size)


def is_noscript(reply: Reply) -> bool:
    """Whether the reply says that the server does not know the script. True for redis-py and valkey-py."""
    return isinstance(reply, Exception) and (
        type(reply).__name__ == "NoScriptError" or str(reply).startswith("NOSCRIPT")
    )


def guarded(flow: Flow[T]) -> Flow[T]:
    """The same flow; scripts that the server has forgotten are loaded and only their calls sent again.

    One more round trip carries both, in order. A SCRIPT FLUSH may come in between, so it is tried a few times. Whatever
    error is left is thrown into the flow.
    """
    try:
        trip = next(flow)
        while True:
            replies = yield trip
            error = _first_error(trip, replies)
            if error is not None:
                replies = yield from _repaired(trip, replies)
                error = _first_error(trip, replies)
            trip = flow.send(replies) if error is None else flow.throw(error)
    except StopIteration as end:
        result: T = end.value
        return result


def _first_error(trip: Trip, replies: list[Reply]) -> Exception | None:
    for i, reply in enumerate(replies):
        if isinstance(reply, Exception) and type(trip[i]) is not Wait:
            return reply
    return None


def _repaired(trip: Trip, replies: list[Reply]) -> Flow[list[Reply]]:
    replies = list(replies)
    for _ in range(MOST_REPAIRS):
        lost = [i for i, reply in enumerate(replies) if is_noscript(reply) and type(trip[i]) is not Wait]
        if not lost:
            break
        load = {c.sha: Plain(("SCRIPT LOAD", c.text)) for i in lost if isinstance(c := trip[i], Call)}
        lost += [i for i, command in enumerate(trip) if type(command) is Wait]  # it has waited for too little
        loads: Trip = [*load.values()]
        second = yield [*loads, *(trip[i] for i in lost)]
        for i, reply in zip(lost, second[len(loads) :], strict=True):
            replies[i] = reply
        if _first_error(loads, second[: len(loads)]) is not None:
            break  # it may not load scripts
    return replies


class Primed(Generic[T]):
    """A flow whose first step is taken, in the caller's thread (rule 3): its first trip and the rest, or its result."""

    __slots__ = ("first", "rest", "result")

    def __init__(self, flow: Flow[T]) -> None:
        self.first: Trip | None = None
        self.rest = guarded(flow)
        try:
            self.first = next(self.rest)
        except StopIteration as end:
            self.result: T = end.value


def run(flow: Primed[T], send: Callable[[Trip], list[Reply]]) -> T:
    """Run a primed flow to its end."""
    trip, rest = flow.first, flow.rest
    if trip is None:
        return flow.result
    try:
        while True:
            trip = rest.send(send(trip))
    except StopIteration as end:
        result: T = end.value
        return result


async def arun(flow: Primed[T], send: Callable[[Trip], Awaitable[list[Reply]]]) -> T:
    """Run a primed flow to its end, on the running loop."""
    trip, rest = flow.first, flow.rest
    if trip is None:
        return flow.result
    try:
        while True:
            trip = rest.send(await send(trip))
    except StopIteration as end:
        result: T = end.value
        return result
