"""Where a saver connects, and what is known of a client before anything is sent over it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from redis.exceptions import AuthenticationError, OutOfMemoryError, RedisClusterException, ResponseError

from redis_ckpt._retry import Retry


class Source(NamedTuple):
    """Where a saver connects: a URL with options, or a client that was given; and how patient it is."""

    redis_url: Any  # text, or a client that was given in its place
    redis_client: Any
    connection_args: Mapping[str, Any] | None
    retry: Retry | None = None
    least_timeout_seconds: float = 0.0  # how long a reply may take on purpose

    def sorted_out(self) -> Source:
        """With a client that stands where the URL is expected put where clients belong."""
        if self.redis_client is None and hasattr(self.redis_url, "execute_command"):
            return self._replace(redis_url=None, redis_client=self.redis_url)
        return self


def refuse_decoding(client: Any) -> None:
    """Refuse a client that turns replies into text: records are bytes.

    Raises:
        ValueError: Said before anything is sent.
    """
    encoder = client.get_encoder()
    if encoder.decode_responses:
        raise ValueError("redis_client has decode_responses=True: make it without, stored values are bytes")


def is_async(client: Any) -> bool:
    """Whether the client is of the asyncio kind.

    Raises:
        TypeError: It is no client at all.
    """
    if not hasattr(client, "execute_command") or not hasattr(client, "get_encoder"):
        raise TypeError(
            "redis_client must be a client of redis-py, valkey-py or fakeredis (a URL goes to redis_url), "
            f"not {type(client).__name__}"
        )
    return inspect.iscoroutinefunction(client.execute_command)


def is_of_redis_py(kind: type, *names: str) -> bool:
    """Whether these methods are redis-py's own: a class that has replaced one wants to be asked through it."""
    return all(str(getattr(getattr(kind, name, None), "__module__", "")).startswith("redis.") for name in names)


UNLIMITED = 2**31
LOOK_AFTER_SECONDS = 1.0  # idle for so long, a connection may have been closed by its server
CONNECTION_METHODS = ("connect", "disconnect", "send_packed_command", "read_response")


def is_drivable(client: Any, kind: type[Any], pool_kind: type[Any]) -> bool:
    """Whether client and pool are redis-py's own, of these kinds, and no subclass has its own way to send."""
    pool = getattr(client, "connection_pool", None)
    return (
        isinstance(client, kind)
        and isinstance(pool, pool_kind)
        and is_of_redis_py(type(client), "execute_command", "parse_response")
        and is_of_redis_py(type(pool), "get_connection", "release")
        and is_of_redis_py(pool.connection_class, *CONNECTION_METHODS)
    )


def may_keep(pool: Any) -> bool:
    """Whether connections of a pool of our own need not come back to it after each use.

    A limit counts for other commands as well, and a provider renews credentials when connections come back. A pool of
    Sentinel closes those that it has when it learns of a new primary.
    """
    if hasattr(pool, "sentinel_manager"):
        return False
    return pool.max_connections >= UNLIMITED and not pool.connection_kwargs.get("credential_provider")


def must_reconnect(connection: Any) -> bool:
    """Whether the server has announced that it goes elsewhere."""
    asked = getattr(connection, "should_reconnect", None)  # redis-py 7
    return asked is not None and bool(asked())


def error_replies(client: Any) -> tuple[type[Exception], ...]:
    """The classes that stand for an error reply: valkey-py has its own.

    A cluster client says some things itself before it asks a server, such as that keys lie in different slots.
    """
    errors: tuple[type[Exception], ...] = (ResponseError, RedisClusterException)
    if any(base.__module__.partition(".")[0] == "valkey" for base in type(client).__mro__):
        theirs = importlib.import_module("valkey.exceptions")
        errors += (theirs.ResponseError, theirs.ValkeyClusterException)
    return errors


def is_cluster(client: Any) -> bool:
    """Whether this is a cluster's client. Only for what has no key to be routed by, and for pipelines."""
    return hasattr(client, "get_primaries")


def clearer(error: Exception) -> Exception:
    """The error reply, or one that says what it means.

    A server that wants a password answers a long command from a stranger with a complaint about its length. Redis 6.2
    wraps it up that memory is full, where a script was to be the first to write.
    """
    if "-OOM " in str(error):
        return OutOfMemoryError(str(error))
    if "unauthenticated" in str(error):
        return AuthenticationError(
            "the server wants a password: redis://user:password@host, or connection_args={'password': ...}"
        )
    return error


def check_options(pool: Any) -> None:
    """Refuse options that no connection takes, now and not at the first use. Opens nothing.

    Raises:
        TypeError: It names the option.
    """
    try:
        pool.connection_class(**pool.connection_kwargs)
    except TypeError as error:
        raise TypeError(f"connection_args or the URL has an option that redis-py does not take: {error}") from None
