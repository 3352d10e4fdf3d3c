"""Connections: how a trip gets to the server and back. The only module that calls redis-py.

A wire sends trips over a client that was given, or over one that it made from a URL and will close.
Replies come back as they are; error replies of the server are items of the list, errors of the
connection are raised.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from redis_ckpt._acked import ask_cluster
from redis_ckpt._direct import Direct
from redis_ckpt._flow import Command, Reply, Scan, Trip, Wait, words
from redis_ckpt._making import check_timeout, has_own_policy, make_client, options_for, timeout_of
from redis_ckpt._process import at_fork
from redis_ckpt._retry import Retry, is_transient
from redis_ckpt._source import (
    Source,
    clearer,
    error_replies,
    is_async,
    is_cluster,
    refuse_decoding,
)
from redis_ckpt._urls import Address, address_of
from redis_ckpt.errors import ClosedError

if TYPE_CHECKING:
    from redis_ckpt.embedded import EmbeddedServer


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


def transient_of(replies: list[Reply]) -> Exception | None:
    """An error reply that may be gone when the same is sent once more."""
    for reply in replies:
        if isinstance(reply, Exception) and is_transient(reply):
            return reply
    return None


def given_up(replies: list[Reply], error: Exception | None) -> list[Reply]:
    """What is left after the last attempt: error replies are the flow's, other errors are raised as they are."""
    if error is not None and not replies:
        raise error
    return replies


def close_client(client: Any) -> None:
    """Close a client of our own, and those of its sentinels."""
    client.close()
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    for sentinel in getattr(manager, "sentinels", ()):
        sentinel.close()


class Wire:
    """What both kinds of wire know of their source.

    Raises:
        ValueError: There is no source, or more than one, or it is unsound: see `options_for`, `refuse_decoding`.
    """

    def __init__(self, owner: str, source: Source) -> None:
        url, client, connection_args, retry, least_timeout_seconds = source
        if client is not None and (url is not None or connection_args is not None):
            raise ValueError("pass redis_url (with connection_args) or redis_client, not both")
        if client is None and url is None:
            raise ValueError("pass redis_url or redis_client")
        self._owner = owner
        self._own = client is None
        self._closed = False
        self._server: EmbeddedServer | None = None
        self._patience = Retry(attempts=0) if retry is None else retry
        if url is not None:
            address = address_of(url)
            self._options = options_for(address, connection_args, least_timeout_seconds)
            if not has_own_policy(self._options):
                self._patience = retry or Retry()
            elif retry is not None:
                raise ValueError("pass retry, or the options of redis-py for it in connection_args, not both")
            if address.kind == "embedded":
                from redis_ckpt import embedded  # only where it is asked for: it needs a Unix

                self._server = embedded.from_url(url)
                address = Address("server", self._server.url)
            self._address = address
        else:
            self._heed(client, retry, least_timeout_seconds)

    def _heed(self, client: Any, retry: Retry | None, least_timeout_seconds: float) -> None:
        """What a client that was given does itself is left to it."""
        is_async(client)  # or it is no client at all
        if is_cluster(client):  # these repeat without a pause
            self._patience = retry or Retry()
        elif retry is not None:
            raise ValueError("a redis_client repeats by its own policy: give retry to it, or give redis_url")
        if least_timeout_seconds:
            check_timeout(timeout_of(client), least_timeout_seconds)

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
        self._is_begun = False
        client = source.redis_client
        if client is not None and is_async(client):
            raise TypeError("RedisSaver takes a blocking client; for an asyncio client use AsyncRedisSaver")
        if client is not None:
            self._begin(client)
            return
        if self._address.kind != "cluster":  # whose client connects when it is made
            self._begin(self._made())
        at_fork(self)

    def begin_in_child(self) -> None:
        """What the parent has, locks too, is the parent's: the first call makes a client anew."""
        if self._is_begun:
            self._left_behind.append(self._client)  # not to be collected: closing it would take its locks
        self._lock, self._is_begun = threading.Lock(), False

    def _made(self) -> Any:
        return make_client(self._address, self._options, is_async=False)

    def _begin(self, client: Any) -> None:
        self._client = client
        self._know(client)
        self._direct = Direct(client, self._own) if Direct.can_drive(client) else None
        self._is_begun = True

    def send(self, trip: Trip) -> list[Reply]:
        """One round trip, sent once more if that may help."""
        self.check_open()
        try:
            replies, error = self._attempt(trip)
            if error is None:
                return replies
            for pause in self._patience.pauses():
                time.sleep(pause)
                if self._closed:
                    break
                replies, error = self._attempt(trip)
                if error is None:
                    break
            return given_up(replies, error)
        finally:
            if self._closed and self._own and self._is_begun:
                close_client(self._client)  # a call that was under way may have opened a connection since

    def _attempt(self, trip: Trip) -> tuple[list[Reply], Exception | None]:
        """The replies, and what speaks for sending once more."""
        try:
            if not self._is_begun:
                with self._lock:
                    if not self._is_begun:
                        self._begin(self._made())
            replies = self._send(trip)
        except Exception as error:
            if not is_transient(error):
                raise
            return [], error
        return replies, transient_of(replies)

    def _send(self, trip: Trip) -> list[Reply]:
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
            close_client(self._client)
        if self._server is not None:
            self._server.close()
