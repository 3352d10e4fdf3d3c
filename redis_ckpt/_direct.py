"""Trips over the connections of a blocking client of redis-py, without what it does for other commands.

A pool counts, locks and looks at the socket each time it gives a connection out and takes it back: a fifth of a round
trip. So a client that nobody else uses leaves its connections here; the pool counts them as used meanwhile, and
disconnects them with its own. Everything that a client is configured to do stays redis-py's: connecting, credentials,
TLS, health checks, and the retry policy.

Rule 1: a connection on which anything may be left unread is closed before another call can have it. Whatever
        interrupts that, and as often as it may, such a connection is rather lost than handed back.
Rule 2: a forked child makes a client anew, and this with it: what the parent has is the parent's.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

import redis
from redis.exceptions import ReadOnlyError, ResponseError

from redis_ckpt._coalesce import pack
from redis_ckpt._flow import Call, Reply, Trip, Wait
from redis_ckpt._source import LOOK_AFTER_SECONDS, is_drivable, may_keep, must_reconnect


class Direct:
    """Sends calls, and waits behind them. Threads may share it.

    Args:
        client: Whose connections are used: see `can_drive`.
        is_own: Whether nobody else uses it.
    """

    def __init__(self, client: Any, is_own: bool) -> None:
        self._pool = client.connection_pool
        self._idle: list[tuple[Any, float]] | None = [] if is_own and may_keep(self._pool) else None

    @staticmethod
    def can_drive(client: Any) -> bool:
        """Whether pool and connections of a client are redis-py's own, shared, and without a cache of replies."""
        return (
            is_drivable(client, redis.Redis, redis.ConnectionPool)
            and client.connection is None
            and getattr(client.connection_pool, "cache", None) is None
        )

    @staticmethod
    def takes(trip: Trip) -> bool:
        """Whether a trip is of calls and waits alone, whose replies need no shaping."""
        return all(type(command) is Call or type(command) is Wait for command in trip)

    def ask(self, trip: Trip) -> list[Reply]:
        """The replies; an error reply is an item.

        Raises:
            RedisError: What the connection's retry policy could not mend.
        """
        packed = [b"".join([pack(command) for command in trip])]  # one piece is one write to the socket
        connection = self._take()
        is_clean = False
        try:
            try:
                replies = _ask(connection, packed, len(trip))
            except Exception as error:
                replies = connection.retry.call_with_retry(
                    _Again(error, connection, packed, len(trip)), lambda _error: connection.disconnect()
                )
            is_clean = True
            return replies
        except ResponseError as error:  # they were all read; the policy has given up
            is_clean = True
            return [error] * len(trip)
        finally:
            if is_clean:
                self._hand_back(connection)
            else:
                connection.disconnect()
                self._pool.release(connection)

    def _take(self) -> Any:
        if self._idle:
            with suppress(IndexError):  # another thread was quicker
                connection, since = self._idle.pop()
                if monotonic() - since < LOOK_AFTER_SECONDS:
                    return connection
                self._pool.release(connection)
        return self._pool.get_connection()  # which looks at it

    def _hand_back(self, connection: Any) -> None:
        if self._idle is None:
            self._pool.release(connection)
            return
        if must_reconnect(connection):
            connection.disconnect()
        self._idle.append((connection, monotonic()))


def _ask(connection: Any, packed: list[bytes], count: int) -> list[Reply]:
    """The replies.

    Raises:
        ResponseError: One is of those that the connection's policy tries again; all were read.
    """
    connection.send_packed_command(packed)
    replies: list[Reply] = []
    refused: ResponseError | None = None
    is_demoted = False
    for _ in range(count):
        try:
            replies.append(connection.read_response())
        except ResponseError as error:
            replies.append(error)
            is_demoted |= isinstance(error, ReadOnlyError)
            if isinstance(error, tuple(getattr(connection, "retry_on_error", None) or ())):
                refused = error
    if is_demoted:
        connection.disconnect()  # the name may lead to another server by now
    if refused is not None:
        raise refused
    return replies


class _Again:
    """Asks once more; at the first time it fails as it has failed already, so that a policy counts that."""

    def __init__(self, error: Exception, connection: Any, packed: list[bytes], count: int) -> None:
        self._error: Exception | None = error
        self._ask = partial(_ask, connection, packed, count)

    def __call__(self) -> list[Reply]:
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._ask()
