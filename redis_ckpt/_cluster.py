"""Coalescing on a cluster: one queue and one connection for each node, all nodes at the same time.

A call goes to the node that its first key belongs to. Whatever does not end well there is asked for once more by the
client's own `execute_command`, which follows redirections, learns where slots have gone and repeats what is worth it:
this module knows no redirection but its name. What no single key leads to a node goes that way from the start.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import redis.asyncio
from redis.exceptions import (
    AskError,
    ClusterDownError,
    SlotNotCoveredError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from redis_ckpt._carriers import exchange, has_known_connections, one
from redis_ckpt._coalesce import Coalescer, Entry, Lanes, Pipelining, is_load
from redis_ckpt._flow import Call, Command, Plain, Reply, Trip, Wait
from redis_ckpt._source import is_of_redis_py

REDIRECTIONS = (AskError, TryAgainError, ClusterDownError)
"""Replies of a node that is not, or not now, the one to ask. MOVED is a kind of ASK in redis-py."""

MOST_FOLLOWED = 5  # times that a call with a wait behind it is followed
ASKING = Plain(("ASKING",))

CLOSED = (RedisConnectionError, RedisTimeoutError, AttributeError)
"""What a connection raises that broke. A cluster client of redis-py closes all its connections when it is about to
learn the slots anew, also those that others are just opening; these find that they have no stream: AttributeError."""
CLOSED_UNDERNEATH = 10  # times that this may happen to one command


class NodeCarrier:
    """Over a connection of one node of a redis-py cluster client. It repeats nothing: that is left to the client."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name  # and not the node: when the client has learned the slots anew it has new objects for them

    async def carry(self, batch: Sequence[Entry]) -> None:
        """One round trip."""
        node = self._client.get_node(node_name=self._name)
        if node is None:
            raise RedisConnectionError(f"{self._name} is no node of the cluster any more")
        connection = node.acquire_connection()
        try:
            if hasattr(node, "disconnect_if_needed"):  # not in every redis-py
                await node.disconnect_if_needed(connection)
            await exchange(connection, batch, {}, Entry.answer, check_health=False)
        finally:
            if self._client.get_node(node_name=self._name) is not node:  # nobody will close what an old object holds
                await connection.disconnect(nowait=True)
            node.release(connection)

    def close(self) -> None:
        """Nothing: the client is closed by whoever made it, and its calls fail then."""


class ClusterSender:
    """Sends the trips of one event loop to the nodes of a cluster."""

    def __init__(self, client: Any, limits: Pipelining, errors: tuple[type[Exception], ...], owner: str) -> None:
        self._client = client
        self._limits = limits
        self._errors = errors
        self._owner = owner
        self._drivable = isinstance(client, redis.asyncio.RedisCluster) and is_of_redis_py(
            type(client), "execute_command", "get_node", "get_node_from_key"
        )
        self._lines: dict[str, Lanes] = {}  # by the name of the node
        self._following = asyncio.Lock()

    async def send(self, trip: Trip) -> list[Reply]:
        """One round trip to each node that the trip speaks of; commands without a key go one by one."""
        await self._client.initialize()
        parts = self._by_node(trip)
        if parts is None:
            return await self._ask_client_all(trip)
        if len(parts) == 1:
            ((line, _),) = parts.values()
            return await self._send_part(line, trip)
        loads = [i for i, command in enumerate(trip) if is_load(command)]
        indices = [[*loads, *calls] for _, calls in parts.values()]
        answers = await asyncio.gather(
            *(
                self._send_part(line, [trip[i] for i in part])
                for (line, _), part in zip(parts.values(), indices, strict=True)
            )
        )
        replies: list[Reply] = [None] * len(trip)
        for part, answer in zip(indices, answers, strict=True):
            for i, reply in zip(part, answer, strict=True):
                replies[i] = reply
        return replies

    def _by_node(self, trip: Trip) -> dict[str, tuple[Lanes, list[int]]] | None:
        """The lines to the nodes, and which calls go there; SCRIPT LOAD goes where a call goes, a wait with its call.

        None if the trip is not only of these, or a node is not known.
        """
        parts: dict[str, tuple[Lanes, list[int]]] = {}
        for i, command in enumerate(trip):
            if type(command) is Call and command.keys and self._drivable:
                try:
                    node = self._client.get_node_from_key(command.keys[0])
                except SlotNotCoveredError:
                    return None
                if not self._is_known(node):
                    return None
                parts.setdefault(node.name, (self._line(node.name), []))[1].append(i)
            elif type(command) is Wait and parts:
                parts[node.name][1].append(i)
            elif not is_load(command):
                return None
        return parts or None

    @staticmethod
    def _is_known(node: Any) -> bool:
        return (
            hasattr(node, "acquire_connection")
            and hasattr(node, "release")
            and has_known_connections(getattr(node, "connection_class", object))
        )

    def _line(self, name: str) -> Lanes:
        line = self._lines.get(name)
        if line is None:
            carrier = NodeCarrier(self._client, name)
            line = self._lines[name] = Lanes(lambda: Coalescer(carrier, self._limits, 1, self._owner))
        return line

    async def _send_part(self, line: Lanes, trip: Trip) -> list[Reply]:
        try:
            replies = await line.send(trip)
        except CLOSED:
            replies = await self._send_once_more(trip)
        if any(isinstance(reply, REDIRECTIONS) for reply in replies):
            async with self._following:  # one after another: many at once make the client close what others need
                for i, reply in enumerate(replies):
                    if isinstance(reply, REDIRECTIONS) or is_load(trip[i]):  # where the call goes, its script goes too
                        replies[i] = await self._ask_client(trip[i])
            if type(trip[-1]) is Wait:
                return await self._acknowledged(trip, replies)
        return replies

    async def _acknowledged(self, trip: Trip, replies: list[Reply]) -> list[Reply]:
        """The replies to a trip that the client has followed where it had to; but it cannot wait where its call went.

        So the call goes once more to where it belongs by now, with the wait behind it on the same connection.
        """
        call, wait = trip[-2:]
        for _ in range(MOST_FOLLOWED):
            parts = self._by_node([call, wait])
            if isinstance(replies[-2], Exception) or parts is None:
                break
            ((line, _),) = parts.values()
            with contextlib.suppress(*CLOSED):
                pair = await line.send([call, wait])
                if type(pair[0]) is AskError:  # on its way to another node
                    pair = (await self._line(f"{pair[0].host}:{pair[0].port}").send([ASKING, call, wait]))[1:]
                if not isinstance(pair[0], REDIRECTIONS):
                    return [*replies[:-2], *pair]
            replies[-2] = await self._ask_client(call)
        return [*replies[:-1], RuntimeError("its node could not be asked to wait")]

    async def _send_once_more(self, trip: Trip) -> list[Reply]:
        """On a new connection first, for it was perhaps the client that closed the old one; then by the client."""
        await self._client.initialize()
        parts = self._by_node(trip)
        if parts is not None and len(parts) == 1:
            ((line, _),) = parts.values()
            with contextlib.suppress(*CLOSED):
                return await line.send(trip)
        return await self._ask_client_all(trip)

    async def _ask_client_all(self, trip: Trip) -> list[Reply]:
        if type(trip[-1]) is Wait:
            return await self._acknowledged(trip, [*[await self._ask_client(c) for c in trip[:-1]], None])
        return [await self._ask_client(command) for command in trip]

    async def _ask_client(self, command: Command) -> Reply:
        """The reply by the client's own `execute_command`, on whatever node that finds."""
        for _ in range(CLOSED_UNDERNEATH):
            with contextlib.suppress(AttributeError):
                return await one(self._client, command, self._errors)
        raise RedisConnectionError("the cluster client closed its connections again and again while it was asked")

    async def close(self) -> None:
        """Send nothing more."""
        for line in self._lines.values():
            await line.close()
