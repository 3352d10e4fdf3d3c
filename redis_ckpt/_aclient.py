"""Connections of asyncio: each event loop has its own client, and a sender that coalesces what its tasks ask for."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import CancelledError as FutureCancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import Any, NamedTuple, Protocol

from redis.exceptions import ConnectionError as RedisConnectionError

from redis_ckpt._carriers import ClientCarrier, PoolCarrier
from redis_ckpt._client import Wire, given_up, next_scan, scan_page, transient_of
from redis_ckpt._cluster import ClusterSender
from redis_ckpt._coalesce import Carrier, Coalescer, Lanes, Pipelining
from redis_ckpt._flow import Command, Reply, Scan, Trip, words
from redis_ckpt._making import make_client
from redis_ckpt._process import at_fork
from redis_ckpt._retry import is_transient
from redis_ckpt._source import UNLIMITED, Source, clearer, is_async

END_SECONDS = 1.0  # how long a process that ends waits for its connections to be closed
LOOP_ENDED = (
    "the event loop on which this blocking call ran has ended: it may or may not have been done. A saver that is made "
    "from a URL has a loop of its own for blocking calls"
)


class Sender(Protocol):
    """What the tasks of one event loop send their trips to."""

    async def send(self, trip: Trip) -> list[Reply]:
        """One round trip; error replies are items, errors of the connection are raised."""

    async def close(self) -> None:
        """Send nothing more."""


class Line(NamedTuple):
    """What an event loop has of a wire."""

    client: Any
    sender: Sender
    keeper: AsyncGenerator[None, None] | None  # closes both when the loop ends; none for a client that was given


class AsyncWire(Wire):
    """Sends trips over asyncio clients, one for each event loop that uses it."""

    def __init__(self, owner: str, source: Source, pipelining: Pipelining) -> None:
        super().__init__(owner, source)
        self._pipelining = pipelining
        self._lock = threading.Lock()
        self._lines: dict[asyncio.AbstractEventLoop, Line] = {}
        self._left_behind: list[dict[asyncio.AbstractEventLoop, Line]] = []
        client = self._given = source.redis_client
        if client is None:
            self._make: Callable[[], Any] = partial(make_client, self._address, self._options, True)
            client = self._make()  # no connection yet; shows what kind of client it is
        elif not is_async(client):
            raise TypeError("AsyncRedisSaver takes an asyncio client; for a blocking client use RedisSaver")
        else:
            self._make = _given_once(client)
        self._know(client)
        at_fork(self)

    def begin_in_child(self) -> None:
        """What the parent has opened is the parent's."""
        self._lock = threading.Lock()
        self._left_behind.append(self._lines)  # not to be collected: that would complain of tasks that do not run here
        self._lines = {}

    @property
    def is_bound(self) -> bool:
        """Whether there is but one client, given, for one loop."""
        return self._given is not None and not _is_copyable(self._given)

    async def _line(self) -> Line:
        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._make()
            for gone in [known for known in self._lines if known.is_closed()]:
                del self._lines[gone]
        sender = self._sender(client)
        keeper = None if client is self._given else self._closed_with_loop(client, sender)
        line = self._lines[loop] = Line(client, sender, keeper)
        if keeper is not None:
            await keeper.asend(None)  # does not wait; from here on the loop knows it
        return line

    def _sender(self, client: Any) -> Sender:
        limits = self._pipelining
        if self._cluster:
            return ClusterSender(client, limits, self._errors, self._owner)
        if PoolCarrier.can_drive(client):
            carrier: Carrier = PoolCarrier(client, self._owner, self._own)
            most: int = client.connection_pool.max_connections
        else:
            carrier, most = ClientCarrier(client, self._errors), UNLIMITED
        connections = min(limits.connections, most)
        if most < 2 * connections:
            return Coalescer(carrier, limits, connections, self._owner)
        return Lanes(lambda: Coalescer(carrier, limits, connections, self._owner))

    async def _closed_with_loop(self, client: Any, sender: Sender) -> AsyncGenerator[None, None]:
        """Closes the client when its loop ends: `asyncio.run` closes the async generators that were begun on it."""
        try:
            yield
        finally:
            self._lines.pop(asyncio.get_running_loop(), None)
            await sender.close()
            await client.aclose()
            manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
            for sentinel in getattr(manager, "sentinels", ()):
                await sentinel.aclose()

    async def send(self, trip: Trip) -> list[Reply]:
        """One round trip, shared with those of other tasks, and sent once more if that may help."""
        self.check_open()
        line = self._lines.get(asyncio.get_running_loop()) or await self._line()
        replies, error = await self._attempt(line, trip)
        if error is None:
            return replies
        for pause in self._patience.pauses():
            await asyncio.sleep(pause)
            if self._closed:
                break
            replies, error = await self._attempt(line, trip)
            if error is None:
                break
        return given_up(replies, error)

    async def _attempt(self, line: Line, trip: Trip) -> tuple[list[Reply], Exception | None]:
        """The replies, and what speaks for sending once more."""
        try:
            replies = await self._send(line, trip)
        except Exception as error:
            if not is_transient(error):
                raise
            return [], error
        return replies, transient_of(replies)

    async def _send(self, line: Line, trip: Trip) -> list[Reply]:
        if self._cluster and any(isinstance(command, Scan) for command in trip):
            return [await self._scan(line.client, command) for command in trip]
        replies = await line.sender.send(trip)
        for i, reply in enumerate(replies):
            if isinstance(reply, Exception):
                replies[i] = clearer(reply)
            elif type(trip[i]) is Scan:
                replies[i] = next_scan(reply, 0, 0)
        return replies

    async def _scan(self, client: Any, command: Command) -> Reply:
        """A page of one node of a cluster."""
        assert isinstance(command, Scan), "a walk over all keys is a trip of its own"
        try:
            await client.initialize()  # a cluster's client knows its nodes only then
            page, options, node, nodes = scan_page(client, command, cluster=True)
            return next_scan(await client.execute_command(*words(page), **options), node, nodes)
        except self._errors as error:
            return clearer(error)

    async def aclose(self) -> None:
        """Close what this wire has opened; a client that was given stays open."""
        self._closed = True
        here = asyncio.get_running_loop()
        for loop, (_, _, keeper) in list(self._lines.items()):
            if keeper is None:
                continue
            if loop is here:
                await keeper.aclose()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_finish(keeper), loop))
        self._lines.clear()
        if self._server is not None:
            await asyncio.to_thread(self._server.close)


async def _finish(keeper: AsyncGenerator[None, None]) -> None:
    await keeper.aclose()


def _given_once(client: Any) -> Callable[[], Any]:
    """Hands out the client that was given; for further loops, copies of it where its pool can be copied."""
    used = False

    def make() -> Any:
        nonlocal used
        if not used:
            used = True
            return client
        if not _is_copyable(client):
            raise RuntimeError(
                f"this {type(client).__name__} is bound to the event loop that used it first; give redis_url "
                "instead of redis_client to use one saver from several loops, or make a saver for each"
            )
        pool = client.connection_pool
        kwargs = dict(pool.connection_kwargs)
        copied = type(pool)(connection_class=pool.connection_class, max_connections=pool.max_connections, **kwargs)
        twin = type(client)(connection_pool=copied)
        twin.auto_close_connection_pool = True  # nobody else closes it
        return twin

    return make


def _is_copyable(client: Any) -> bool:
    """Whether another loop can have a client like this one."""
    return type(getattr(client, "connection_pool", None)).__name__ in ("ConnectionPool", "BlockingConnectionPool")


class Portal:
    """An event loop in a thread of its own: for blocking calls of an asyncio saver when no loop runs.

    A process that ends without closing it has its connections closed all the same.
    """

    def __init__(self) -> None:
        self._process_id = os.getpid()
        atexit.register(self._end)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="redis-ckpt-loop", daemon=True)
        self._thread.start()

    def _end(self) -> None:
        """Close what was opened on the loop, then the loop; a forked child has neither."""
        if os.getpid() == self._process_id and self._thread.is_alive():
            with contextlib.suppress(Exception):
                asyncio.run_coroutine_threadsafe(self.loop.shutdown_asyncgens(), self.loop).result(END_SECONDS)
            self.close()

    def close(self) -> None:
        """Stop the loop and its thread."""
        atexit.unregister(self._end)
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self.loop.close()


def run_on(loop: asyncio.AbstractEventLoop, work: Awaitable[Any]) -> Any:
    """The result of `work`, run on a loop of another thread.

    Raises:
        ConnectionError: That loop ended meanwhile.
    """

    async def working() -> Any:
        return await work

    future = asyncio.run_coroutine_threadsafe(working(), loop)
    while True:
        try:
            return future.result(timeout=1)
        except FutureCancelledError:
            raise RedisConnectionError(LOOP_ENDED) from None
        except FutureTimeoutError:  # before Python 3.11 not the built-in one
            if future.done():
                raise
            if not loop.is_running():
                future.cancel()
                raise RedisConnectionError(LOOP_ENDED) from None
