"""Carriers: how a batch of trips gets to a server and back, over the clients that there are.

A client of redis-py keeps everything that it is configured to do: connections are made by its pool (credentials, TLS,
database, protocol, health checks), handed back where it may want to do something with them (renew their credentials,
look whether the server has closed them, count them), and batches are repeated by the connection's own retry policy.
Only packing and parsing are done in bulk. A client of any other library, or one whose parts are not what redis-py
makes, is asked through its public pipeline.

Rule 1: a connection on which anything may be left unread is closed. redis-py does that whenever a read or a write
        ends in an exception, cancellation included; what ends in between is closed here.
Rule 2: an attribute of redis-py that is not public is used only where its type has been checked, and there is a way
        without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

import hiredis
import redis.asyncio
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, ResponseError

from redis_ckpt._coalesce import Entry, cut_off, is_load, is_shared, on_the_wire
from redis_ckpt._flow import Call, Command, Reply, Wait, words
from redis_ckpt._source import (
    CONNECTION_METHODS,
    LOOK_AFTER_SECONDS,
    is_drivable,
    is_of_redis_py,
    may_keep,
    must_reconnect,
)

try:
    _parsing: Any = importlib.import_module("redis._parsers.hiredis")
except ImportError:  # a redis-py that keeps it elsewhere: replies are then read one by one
    _parsing = None
KNOWN_PARSER = getattr(_parsing, "_AsyncHiredisParser", None)
NOT_ENOUGH_DATA = getattr(_parsing, "NOT_ENOUGH_DATA", object())

Callbacks: TypeAlias = Mapping[Any, Callable[[Any], Any]]


_Deliver: TypeAlias = Callable[[Entry, "list[Reply]"], None]


def has_known_connections(connection_class: Any) -> bool:
    """Whether connections of this class are redis-py's own, or its Sentinel's."""
    return issubclass(connection_class, AbstractConnection) and is_of_redis_py(connection_class, *CONNECTION_METHODS)


class Replies:
    """The replies on a connection, in order: parsed in bulk where its parser is known, else one by one."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._parser: Any = None
        self.is_demoted = False  # the server has said that it is a replica
        self._gets: Callable[[], Any] = _nothing
        parser = getattr(connection, "_parser", None)
        if KNOWN_PARSER is None or type(parser) is not KNOWN_PARSER:
            return
        if type(connection).read_response is not AbstractConnection.read_response:
            return  # the one of Sentinel looks into each reply
        reader = getattr(parser, "_reader", None)
        # before the first reply there is nothing: an answer other than the known mark is a parser that we do not know
        if isinstance(reader, hiredis.Reader) and not reader.has_data() and reader.gets() is NOT_ENOUGH_DATA:
            self._parser, self._gets = parser, reader.gets

    async def next(self) -> Reply:
        """The next reply; an error reply is an item.

        Raises:
            ConnectionError: The connection broke, or the server said that it does not serve it (yet).
        """
        reply = self._gets()
        while isinstance(reply, hiredis.PushNotification):
            await self._parser.handle_push_response(reply)
            reply = self._gets()
        if reply is NOT_ENOUGH_DATA:
            try:
                return await self._connection.read_response()
            except ResponseError as error:
                reply = error
        if isinstance(reply, Exception):
            if isinstance(reply, RedisConnectionError):
                raise reply
            self.is_demoted |= isinstance(reply, ReadOnlyError)
        return reply


def _nothing() -> Any:
    return NOT_ENOUGH_DATA


async def exchange(
    connection: Any, entries: Sequence[Entry], callbacks: Callbacks, deliver: _Deliver, check_health: bool = True
) -> None:
    """Write all entries in one go, then read; each is delivered as soon as its replies are there."""
    try:
        await _write(connection, [packed for _, packed in on_the_wire(entries)], check_health)
        replies = Replies(connection)
        shared: dict[bytes, Reply] = {}
        waiting: list[tuple[Entry, list[Reply]]] = []
        for entry in entries:
            own = await _own_replies(replies, entry, shared, callbacks)
            if len(own) == len(entry.trip):
                deliver(entry, own)
            else:
                waiting.append((entry, own))
        for entry, own in waiting:
            if (packed := entry.packed[-1]) not in shared:
                shared[packed] = await replies.next()
            deliver(entry, [*own, shared[packed]])
        if replies.is_demoted:
            await connection.disconnect()  # its name may lead to another server by now
    except BaseException:
        await connection.disconnect(nowait=True)
        raise


async def _own_replies(replies: Replies, entry: Entry, shared: dict[bytes, Reply], callbacks: Callbacks) -> list[Reply]:
    """The replies to an entry, without that to a wait, which comes behind all others."""
    own: list[Reply] = []
    for command, packed in zip(entry.trip, entry.packed, strict=True):
        if type(command) is Call:
            own.append(await replies.next())
        elif packed in shared:
            own.append(shared[packed])
        elif type(command) is not Wait:
            own.append(_shaped(command, await replies.next(), callbacks))
            if is_load(command):
                shared[packed] = own[-1]
    return own


async def _write(connection: Any, packed: list[bytes], check_health: bool) -> None:
    """Send. redis-py makes a task for each write where there is a timeout, which only a full buffer can need."""
    writer = getattr(connection, "_writer", None)
    if type(writer) is asyncio.StreamWriter and connection.is_connected and not connection.health_check_interval:
        writer.writelines(packed)
        if not writer.transport.get_write_buffer_size():
            return
        packed = []  # waits for room
    await connection.send_packed_command(packed, check_health)


def _shaped(command: Command, reply: Reply, callbacks: Callbacks) -> Reply:
    """The reply as `execute_command` would have given it."""
    callback = callbacks.get(words(command)[0])
    return reply if callback is None or isinstance(reply, Exception) else callback(reply)


class PoolCarrier:
    """Over the connections of a redis-py client."""

    def __init__(self, client: Any, owner: str, is_own: bool = False) -> None:
        self._pool = client.connection_pool
        # A pool takes locks and counts each time it gives a connection out: those of our own client stay here.
        self._idle: list[tuple[Any, float]] | None = [] if is_own and may_keep(self._pool) else None
        self._callbacks: Callbacks = client.response_callbacks
        self._owner = owner
        self._closed = False
        self._releases: set[asyncio.Task[None]] = set()

    @staticmethod
    def can_drive(client: Any) -> bool:
        """Whether pool and connections of this client are redis-py's own, and no subclass has its own way to send."""
        return (
            is_drivable(client, redis.asyncio.Redis, redis.asyncio.ConnectionPool)
            and not client.single_connection_client
            and has_known_connections(client.connection_pool.connection_class)
        )

    async def carry(self, batch: Sequence[Entry]) -> None:
        """One round trip, repeated by the connection's policy for what remains unanswered."""
        connection = await self._take()
        refused: dict[Entry, list[Reply]] = {}
        is_clean = False
        try:
            await connection.retry.call_with_retry(
                partial(self._try, connection, batch, refused), lambda _error: connection.disconnect()
            )
            is_clean = True
        except _ClosedMeanwhile:
            raise cut_off(self._owner) from None
        except ResponseError:  # tried often enough: the server's last word is the answer
            is_clean = True
            for entry, replies in refused.items():
                entry.answer(replies)
        finally:
            await (self._hand_back if is_clean else self._release)(connection)

    async def _take(self) -> Any:
        if self._idle:
            connection, since = self._idle.pop()
            reader = getattr(connection, "_reader", None)
            is_open = type(reader) is asyncio.StreamReader and not reader.at_eof()
            if is_open and monotonic() - since < LOOK_AFTER_SECONDS:
                return connection
            await self._release(connection)
        return await self._pool.get_connection()  # which looks at it

    async def _hand_back(self, connection: Any) -> None:
        if self._idle is None:
            await self._release(connection)
            return
        if must_reconnect(connection):
            await connection.disconnect()
        self._idle.append((connection, monotonic()))

    async def _try(self, connection: Any, batch: Sequence[Entry], refused: dict[Entry, list[Reply]]) -> None:
        if self._closed:
            raise _ClosedMeanwhile
        refused.clear()
        temporary = tuple(getattr(connection, "retry_on_error", None) or ())

        def deliver(entry: Entry, replies: list[Reply]) -> None:
            if temporary and any(isinstance(reply, temporary) for reply in replies):
                refused[entry] = replies
            else:
                entry.answer(replies)

        await exchange(connection, [entry for entry in batch if not entry.answered], self._callbacks, deliver)
        for replies in refused.values():
            raise next(reply for reply in replies if isinstance(reply, temporary))

    async def _release(self, connection: Any) -> None:
        try:
            await self._pool.release(connection)
        except asyncio.CancelledError:
            # it may have waited for the pool's lock: without this the pool would count the connection as used for ever
            task = asyncio.get_running_loop().create_task(self._release_again(connection))
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)
            raise

    async def _release_again(self, connection: Any) -> None:
        with contextlib.suppress(KeyError, ValueError):  # it had been released
            await self._pool.release(connection)

    def close(self) -> None:
        """Begin nothing more; retries neither."""
        self._closed = True


class _ClosedMeanwhile(Exception):
    """No policy tries this again."""


class ClientCarrier:
    """Over the public pipeline of any client."""

    def __init__(self, client: Any, errors: tuple[type[Exception], ...]) -> None:
        self._client = client
        self._errors = errors

    async def carry(self, batch: Sequence[Entry]) -> None:
        """One round trip, repeated by the client's policy."""
        sent = list(on_the_wire(batch))
        if len(sent) == 1:
            replies = [await one(self._client, sent[0][0], self._errors)]
        else:
            pipe = self._client.pipeline(transaction=False)
            for command, _ in sent:
                pipe.execute_command(*words(command))
            replies = await pipe.execute(raise_on_error=False)
        answered = list(zip(sent, replies, strict=True))
        shared = {packed: reply for (command, packed), reply in answered if is_shared(command)}
        others = iter([reply for (command, _), reply in answered if not is_shared(command)])
        for entry in batch:
            entry.answer(
                [
                    shared[packed] if is_shared(command) else next(others)
                    for command, packed in zip(entry.trip, entry.packed, strict=True)
                ]
            )

    def close(self) -> None:
        """Nothing: the client is closed by whoever made it, and its calls fail then."""


async def one(client: Any, command: Command, errors: tuple[type[Exception], ...]) -> Reply:
    """The reply to one command, by the client's own way to send; an error reply is an item."""
    try:
        return await client.execute_command(*words(command))
    except errors as error:
        return error
