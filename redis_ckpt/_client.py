"""Connections: how a trip gets to the server and back. The only module that calls redis-py.

A wire sends trips over a client that was given, or over one that it made from a URL and will close.
Replies come back as they are; error replies of the server are items of the list, errors of the
connection are raised.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import BusyLoadingError, ReadOnlyError

from redis_ckpt._acked import ask_cluster
from redis_ckpt._direct import Direct
from redis_ckpt._flow import Command, Reply, Scan, Trip, Wait, words
from redis_ckpt._process import at_fork
from redis_ckpt._source import (
    UNLIMITED,
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


def retrying(retry_class: Any) -> dict[str, Any]:
    """The options of a client that repeats what may have been lost."""
    backoff = ExponentialWithJitterBackoff(base=BACKOFF_BASE_SECONDS, cap=BACKOFF_CAP_SECONDS)
    return {"retry": retry_class(backoff, RETRIES), "retry_on_error": [BusyLoadingError, ReadOnlyError]}


def scan_page(client: Any, scan: Scan, cluster: bool) -> tuple[Scan, dict[str, Any], int, int]:
    """The SCAN of one node, the options that lead to it, its number, and how many nodes there are (0: no cluster)."""
    if not cluster:
        return scan, {}, 0, 0
    node, cursor = scan.cursor or (0, 0)
    nodes = sorted(client.get_primaries(), key=lambda n: str(n.name))
    return scan._replace(cursor=cursor), {"target_nodes": nodes[node]}, node, len(nodes)


def next_scan(reply: Any, node: int, nodes: int) -> list[Any]:
    """[next cursor or None, keys]; on a cluster the cursor is (node, its cursor)."""
    cursor, keys = reply
    if isinstance(cursor, Mapping):
        cursor = next(iter(cursor.values()))
    if int(cursor) != 0:
        return [(node, int(cursor)) if nodes else int(cursor), keys]
    return [(node + 1, 0) if node + 1 < nodes else None, keys]


class Wire:
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


class SyncWire(Wire):
    """Sends trips over a blocking client. Threads may share it."""

    def __init__(self, owner: str, source: Source) -> None:
        super().__init__(owner, source)
        self._lock = threading.Lock()
        self._left_behind: list[Any] = []
        client = source.redis_client
        if client is None:
            client = self._made()
            check_options(client.connection_pool)
        elif is_async(client):
            raise TypeError("RedisSaver takes a blocking client; for an asyncio client use AsyncRedisSaver")
        self._begin(client)
        if self._own:
            at_fork(self)

    def begin_in_child(self) -> None:
        """What the parent has, locks too, is the parent's: the first call makes a client anew."""
        self._left_behind.append(self._client)  # not to be collected: closing it would take its locks
        self._lock, self._is_begun = threading.Lock(), False

    def _made(self) -> Any:
        retry = retrying(importlib.import_module("redis.retry").Retry)
        # threads are the caller's to bound: no limit of our own that fails where a wait would do
        return redis.Redis.from_url(self._url, **{"max_connections": UNLIMITED, **retry, **self._options})

    def _begin(self, client: Any) -> None:
        self._client = client
        self._know(client)
        self._direct = Direct(client, self._own) if Direct.can_drive(client) else None
        self._is_begun = True

    def send(self, trip: Trip) -> list[Reply]:
        """One round trip."""
        self.check_open()
        if not self._is_begun:
            with self._lock:
                if not self._is_begun:
                    self._begin(self._made())
        try:
            if self._direct is not None and Direct.takes(trip):
                return [clearer(reply) if isinstance(reply, Exception) else reply for reply in self._direct.ask(trip)]
            if self._cluster and type(trip[-1]) is Wait:
                return ask_cluster(self._client, trip, self._one)
            if len(trip) == 1 or self._cluster:
                return [self._one(command) for command in trip]
            pipe = self._client.pipeline(transaction=False)
            for command in trip:
                pipe.execute_command(*words(command))
            replies: list[Reply] = pipe.execute(raise_on_error=False)
            return replies
        finally:
            if self._closed and self._own:
                self._client.close()  # a call that was under way may have opened a connection since

    def _one(self, command: Command) -> Reply:
        try:
            if not isinstance(command, Scan):
                return self._client.execute_command(*words(command))
            page, options, node, nodes = scan_page(self._client, command, self._cluster)
            return next_scan(self._client.execute_command(*words(page), **options), node, nodes)
        except self._errors as error:
            return clearer(error)

    def close(self) -> None:
        """Close what this wire has opened; a client that was given stays open."""
        self._closed = True
        if self._own and self._is_begun:
            self._client.close()
        if self._server is not None:
            self._server.close()
