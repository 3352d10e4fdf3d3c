"""Connections: how a trip gets to the server and back. The only module that calls redis-py.

A wire sends trips over a client that was given, or over one that it made from a URL and will close.
Replies come back as they are; error replies of the server are items of the list, errors of the
connection are raised.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

import redis
import redis.asyncio
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import BusyLoadingError, ReadOnlyError

from redis_ckpt._flow import Call, Command, Plain, Reply, Scan, Trip
from redis_ckpt._source import (
    Source,
    check_options,
    clearer,
    error_replies,
    is_async,
    is_cluster,
    refuse_decoding,
    url_options,
)
from redis_ckpt.errors import ClosedError

if TYPE_CHECKING:
    from redis_ckpt.embedded import EmbeddedServer

RETRIES = 5  # with the back-off below waits of 2.5 seconds at the most; every script is safe to repeat
BACKOFF_BASE_SECONDS, BACKOFF_CAP_SECONDS = 0.05, 1.0
MAX_CONNECTIONS = 64  # of one event loop; further calls wait for a free one instead of failing


def _retrying(retry_class: Any) -> dict[str, Any]:
    backoff = ExponentialWithJitterBackoff(base=BACKOFF_BASE_SECONDS, cap=BACKOFF_CAP_SECONDS)
    return {"retry": retry_class(backoff, RETRIES), "retry_on_error": [BusyLoadingError, ReadOnlyError]}


def _words(command: Command) -> tuple[Any, ...]:
    if isinstance(command, Call):
        return ("EVALSHA", command.sha, len(command.keys), *command.keys, *command.args)
    if isinstance(command, Plain):
        return command.words
    return ("SCAN", command.cursor or 0, "MATCH", command.pattern, "COUNT", command.size)


def _scan_page(client: Any, scan: Scan, cluster: bool) -> tuple[Scan, dict[str, Any], int, int]:
    """The SCAN of one node, the options that lead to it, its number, and how many nodes there are (0: no cluster)."""
    if not cluster:
        return scan, {}, 0, 0
    node, cursor = scan.cursor or (0, 0)
    nodes = sorted(client.get_primaries(), key=lambda n: str(n.name))
    return scan._replace(cursor=cursor), {"target_nodes": nodes[node]}, node, len(nodes)


def _next_scan(reply: Any, node: int, nodes: int) -> list[Any]:
    """[next cursor or None, keys]; on a cluster the cursor is (node, its cursor)."""
    cursor, keys = reply
    if isinstance(cursor, Mapping):
        cursor = next(iter(cursor.values()))
    if int(cursor) != 0:
        return [(node, int(cursor)) if nodes else int(cursor), keys]
    return [(node + 1, 0) if node + 1 < nodes else None, keys]


class _Wire:
    """What both kinds of wire know of their source.

    Raises:
        ValueError: There is no source, or more than one, or it is unsound: see `url_options`, `refuse_decoding`.
    """

    def __init__(self, owner: str, source: Source) -> None:
        url, client, connection_args = source
        if client is not None and (url is not None or connection_args is not None):
            raise ValueError("pass redis_url (with connection_args) or redis_client, not both")
        if client is None and url is None:
            raise ValueError("pass redis_url or redis_client")
        self._owner = owner
        self._own = client is None
        self._closed = False
        self._server: EmbeddedServer | None = None
        if url is not None:
            self._options = url_options(url, connection_args)
            if url.startswith("embedded://"):
                from redis_ckpt import embedded  # only where it is asked for: it needs a Unix

                self._server = embedded.from_url(url)
                url = self._server.url
        self._url = url or ""

    def check_open(self) -> None:
        """Refuse to work after `close`."""
        if self._closed:
            raise ClosedError(self._owner)

    def _know(self, client: Any) -> None:
        """Learn from a client, before its first use, what kind it is."""
        refuse_decoding(client)
        self._errors = error_replies(client)
        self._cluster = is_cluster(client)


class SyncWire(_Wire):
    """Sends trips over a blocking client. Threads may share it."""

    def __init__(self, owner: str, source: Source) -> None:
        super().__init__(owner, source)
        self._client = client = source.redis_client
        if client is None:
            retry = _retrying(importlib.import_module("redis.retry").Retry)
            # threads are the caller's to bound: no limit of our own that fails where a wait would do
            self._client = redis.Redis.from_url(self._url, **{"max_connections": 2**31, **retry, **self._options})
            check_options(self._client.connection_pool)
        elif is_async(client):
            raise TypeError("RedisSaver takes a blocking client; for an asyncio client use AsyncRedisSaver")
        self._know(self._client)

    def send(self, trip: Trip) -> list[Reply]:
        """One round trip."""
        self.check_open()
        try:
            if len(trip) == 1 or self._cluster:
                return [self._one(command) for command in trip]
            pipe = self._client.pipeline(transaction=False)
            for command in trip:
                pipe.execute_command(*_words(command))
            replies: list[Reply] = pipe.execute(raise_on_error=False)
            return replies
        finally:
            if self._closed and self._own:
                self._client.close()  # a call that was under way may have opened a connection since

    def _one(self, command: Command) -> Reply:
        try:
            if not isinstance(command, Scan):
                return self._client.execute_command(*_words(command))
            page, options, node, nodes = _scan_page(self._client, command, self._cluster)
            return _next_scan(self._client.execute_command(*_words(page), **options), node, nodes)
        except self._errors as error:
            return clearer(error)

    def close(self) -> None:
        """Close what this wire has opened; a client that was given stays open."""
        self._closed = True
        if self._own:
            self._client.close()
        if self._server is not None:
            self._server.close()


class AsyncWire(_Wire):
    """Sends trips over asyncio clients, one for each event loop that uses it."""

    def __init__(self, owner: str, source: Source) -> None:
        super().__init__(owner, source)
        self._lock = threading.Lock()
        self._clients: dict[asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[None, None] | None]] = {}
        client = self._given = source.redis_client
        if client is None:
            self._make: Callable[[], Any] = _async_maker(self._url, self._options)
            client = self._make()  # no connection yet; shows what kind of client it is, and that the URL is sound
            check_options(client.connection_pool)
        elif not is_async(client):
            raise TypeError("AsyncRedisSaver takes an asyncio client; for a blocking client use RedisSaver")
        else:
            self._make = _given_once(client)
        self._know(client)

    def forget_loops(self) -> None:
        """Begin anew in a forked child; what the parent has opened is the parent's."""
        self._lock = threading.Lock()
        self._clients = {}

    async def _client(self) -> Any:
        loop = asyncio.get_running_loop()
        try:
            return self._clients[loop][0]
        except KeyError:
            with self._lock:
                client = self._make()
                for gone in [known for known in self._clients if known.is_closed()]:
                    del self._clients[gone]
            keeper = None if client is self._given else self._closed_with_loop(client)
            self._clients[loop] = client, keeper
            if keeper is not None:
                await keeper.asend(None)  # does not wait; from here on the loop knows it
            return client

    async def _closed_with_loop(self, client: Any) -> AsyncGenerator[None, None]:
        """Closes the client when its loop ends: `asyncio.run` closes the async generators that were begun on it."""
        try:
            yield
        finally:
            self._clients.pop(asyncio.get_running_loop(), None)
            await client.aclose()

    async def send(self, trip: Trip) -> list[Reply]:
        """One round trip."""
        self.check_open()
        client = await self._client()
        if len(trip) == 1 or self._cluster:
            return [await self._one(client, command) for command in trip]
        pipe = client.pipeline(transaction=False)
        for command in trip:
            pipe.execute_command(*_words(command))
        replies: list[Reply] = await pipe.execute(raise_on_error=False)
        return replies

    async def _one(self, client: Any, command: Command) -> Reply:
        try:
            if not isinstance(command, Scan):
                return await client.execute_command(*_words(command))
            await client.initialize()  # a cluster's client knows its nodes only then
            page, options, node, nodes = _scan_page(client, command, self._cluster)
            return _next_scan(await client.execute_command(*_words(page), **options), node, nodes)
        except self._errors as error:
            return clearer(error)

    async def aclose(self) -> None:
        """Close what this wire has opened; a client that was given stays open."""
        self._closed = True
        here = asyncio.get_running_loop()
        for loop, (_, keeper) in list(self._clients.items()):
            if keeper is None:
                continue
            if loop is here:
                await keeper.aclose()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_finish(keeper), loop))
        self._clients.clear()
        if self._server is not None:
            await asyncio.to_thread(self._server.close)


async def _finish(keeper: AsyncGenerator[None, None]) -> None:
    await keeper.aclose()


def _async_maker(redis_url: str, options: dict[str, Any]) -> Callable[[], Any]:
    def make() -> Any:
        retry = _retrying(importlib.import_module("redis.asyncio.retry").Retry)
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            redis_url, **{"max_connections": MAX_CONNECTIONS, "timeout": None, **retry, **options}
        )
        return redis.asyncio.Redis.from_pool(pool)

    return make


def _given_once(client: Any) -> Callable[[], Any]:
    """Hands out the client that was given; for further loops, copies of it where its pool can be copied."""
    used = False

    def make() -> Any:
        nonlocal used
        if not used:
            used = True
            return client
        pool = getattr(client, "connection_pool", None)
        if pool is None or type(pool).__name__ not in ("ConnectionPool", "BlockingConnectionPool"):
            raise RuntimeError(
                f"this {type(client).__name__} is bound to the event loop that used it first; give redis_url "
                "instead of redis_client to use one saver from several loops, or make a saver for each"
            )
        kwargs = dict(pool.connection_kwargs)
        copied = type(pool)(connection_class=pool.connection_class, max_connections=pool.max_connections, **kwargs)
        twin = type(client)(connection_pool=copied)
        twin.auto_close_connection_pool = True  # nobody else closes it
        return twin

    return make


class Portal:
    """An event loop in a thread of its own: for blocking calls of an asyncio saver when no loop runs."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="redis-ckpt-loop", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the loop and its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self.loop.close()


def run_on(loop: asyncio.AbstractEventLoop, work: Awaitable[Any]) -> Any:
    """The result of `work`, run on a loop of another thread. A loop that stops meanwhile is an error."""

    async def working() -> Any:
        return await work

    future = asyncio.run_coroutine_threadsafe(working(), loop)
    while True:
        try:
            return future.result(timeout=1)
        except FutureTimeoutError:  # before Python 3.11 not the built-in one
            if future.done():
                raise
            if not loop.is_running():
                future.cancel()
                raise RuntimeError("the event loop of this saver stopped in the middle of a call") from None
