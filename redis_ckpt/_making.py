"""Clients that are made from a URL: their options, checked before anything is sent, and how each kind is made.

Discovery, credentials and TLS are redis-py's. What is sent once more is not: see `_retry`, and the wires. redis-py's
clients for one server repeat within a connection and those for clusters without any pause, so theirs is switched off,
unless options of redis-py ask for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis.backoff import NoBackoff
from redis.connection import parse_url

from redis_ckpt._source import UNLIMITED, check_options
from redis_ckpt._urls import Address

SOCKET_TIMEOUT_SECONDS, CONNECT_TIMEOUT_SECONDS = 10.0, 5.0
ELSEWHERE = {
    "sentinel": ("sentinel_kwargs",),
    "cluster": (
        "address_remap",
        "dynamic_startup_nodes",
        "load_balancing_strategy",
        "read_from_replicas",
        "reinitialize_steps",
        "require_full_coverage",
    ),
}
"""Options of a client that no connection takes, by the kind of address."""
CLUSTER_TRIES = 3  # of a cluster's client itself, which then asks other nodes for the slots


def options_for(
    address: Address, connection_args: Mapping[str, Any] | None, least_timeout_seconds: float
) -> dict[str, Any]:
    """The options of a client that is made from a URL, checked; what the URL says itself is not among them.

    Args:
        address: What the URL names.
        connection_args: What the caller has given; it goes before the defaults.
        least_timeout_seconds: How long a reply may take on purpose.

    Raises:
        ValueError: Replies would be decoded, or would not be waited for.
        TypeError: No connection takes one of them.
    """
    is_socket = address.kind == "embedded" or urlsplit(address.url).scheme == "unix"
    timeout_seconds = max(SOCKET_TIMEOUT_SECONDS, least_timeout_seconds)
    options: dict[str, Any] = _quiet() | {"socket_timeout": timeout_seconds}
    if not is_socket:
        options |= {"socket_connect_timeout": CONNECT_TIMEOUT_SECONDS, "socket_keepalive": True}
    options |= dict(connection_args or {})
    said = {} if address.kind == "embedded" else parse_url(address.url)
    decode = said.get("decode_responses", options.get("decode_responses"))
    if decode and str(decode).lower() not in ("no", "false", "0"):
        raise ValueError("decode_responses must be off: stored values are bytes")
    check_timeout(said.get("socket_timeout", options["socket_timeout"]), least_timeout_seconds)
    if address.kind != "embedded":
        of_kind = ELSEWHERE.get(address.kind, ())
        check_options(
            redis.ConnectionPool.from_url(address.url, **{k: v for k, v in options.items() if k not in of_kind})
        )
    return options


def check_timeout(timeout_seconds: float | None, least_seconds: float) -> None:
    """Refuse a socket timeout below how long a reply may take on purpose.

    Raises:
        ValueError: It names both.
    """
    if timeout_seconds is not None and timeout_seconds < least_seconds:
        raise ValueError(
            f"socket_timeout is {timeout_seconds} s, but a reply may take {least_seconds} s while acknowledgements are "
            "waited for: raise it, or lower the timeout of Ack"
        )


def timeout_of(client: Any) -> float | None:
    """How long a client that was given waits for a reply, in seconds; None for as long as it takes."""
    pool = getattr(client, "connection_pool", None)
    manager = getattr(client, "nodes_manager", None)
    if pool is not None:
        found = getattr(pool.connection_class(**pool.connection_kwargs), "socket_timeout", None)
    else:
        options = getattr(client, "connection_kwargs", None) or getattr(manager, "connection_kwargs", {})
        found = options.get("socket_timeout", getattr(redis.connection, "DEFAULT_SOCKET_TIMEOUT", None))
    return None if found is None else float(found)


def has_own_policy(options: Mapping[str, Any]) -> bool:
    """Whether options of redis-py say what is repeated."""
    return not options.keys().isdisjoint(("retry", "retry_on_error", "retry_on_timeout"))


def _quiet() -> dict[str, Any]:
    """Options under which a new connection sends nothing of its own: servers may forbid CLIENT."""
    options: dict[str, Any] = {"protocol": 2}
    try:
        importlib.import_module("redis.driver_info")
        options["driver_info"] = None
    except ImportError:  # redis-py before 7.2
        options |= {"lib_name": None, "lib_version": None}
    return options


def make_client(address: Address, options: dict[str, Any], is_async: bool) -> Any:
    """A client of redis-py for what a URL names. One for a blocking cluster connects here, all others when used."""
    own: dict[str, Any] = {"max_connections": UNLIMITED}  # callers bound themselves, and wait where a pool would fail
    if not has_own_policy(options):
        own["retry"] = _retry_class(is_async)(NoBackoff(), CLUSTER_TRIES if address.kind == "cluster" else 0)
    if address.is_tls and not is_async:
        own["redis_connect_func"] = _read_once if address.kind == "cluster" else _begin_and_read_once
    options = own | options
    if address.kind == "cluster":
        return _cluster(address, options, is_async)
    if address.kind == "sentinel":
        return _by_sentinel(address, options, is_async)
    if is_async:
        # A pool that waits instead costs 15 us a call more (November 2026, redis-py 8.1).
        return redis.asyncio.Redis.from_pool(redis.asyncio.ConnectionPool.from_url(address.url, **options))
    return redis.Redis.from_url(address.url, **options)


def _read_once(connection: Any) -> None:
    """Ask a new connection of TLS something.

    A server sends tickets behind the handshake, which are taken off the socket by the next read. redis-py 8 looks at
    the socket before its first command, takes them for a reply that nobody has read, and gives the connection up.
    """
    connection.send_command("PING", check_health=False)
    connection.read_response()


def _begin_and_read_once(connection: Any) -> None:
    connection.on_connect()  # which a function of its own replaces
    _read_once(connection)


def _retry_class(is_async: bool) -> Any:
    return importlib.import_module("redis.asyncio.retry" if is_async else "redis.retry").Retry


def _cluster(address: Address, options: dict[str, Any], is_async: bool) -> Any:
    if is_async:
        async_nodes = [redis.asyncio.cluster.ClusterNode(host, port) for host, port in address.hosts]
        return redis.asyncio.RedisCluster.from_url(address.url, startup_nodes=async_nodes, **options)
    nodes = [redis.cluster.ClusterNode(host, port) for host, port in address.hosts]
    return redis.RedisCluster.from_url(address.url, startup_nodes=nodes, **options)


def _by_sentinel(address: Address, options: dict[str, Any], is_async: bool) -> Any:
    said = parse_url(address.url)
    said = {k: v for k, v in said.items() if k not in ("host", "port", "connection_class")}
    tls = {"ssl": True} if address.is_tls else {}
    options = options | said | tls
    of_sentinels = options.pop("sentinel_kwargs", None) or {}
    shared = {k: v for k, v in options.items() if k.startswith(("socket_", "ssl"))}
    quiet = _quiet() | ({} if has_own_policy(of_sentinels) else {"retry": _retry_class(is_async)(NoBackoff(), 0)})
    if address.is_tls and not is_async:
        quiet["redis_connect_func"] = _begin_and_read_once
    of_sentinels = shared | quiet | dict(of_sentinels)  # credentials alone must not put TLS off
    kind: Any = redis.asyncio.sentinel.Sentinel if is_async else redis.sentinel.Sentinel
    manager = kind(list(address.hosts), sentinel_kwargs=of_sentinels)
    manager.sentinels = Sentinels(manager.sentinels)
    return manager.master_for(address.service, **options)


class Sentinels(list[Any]):
    """The sentinels of a manager, the one that answered last in front.

    redis-py brings it there by assigning to two places. Where several tasks or threads look for the primary at once
    that loses a sentinel, and has another twice: in the end all may be the one that is down.
    """

    def __setitem__(self, at: Any, sentinel: Any) -> None:
        if at == 0:
            self.remove(sentinel)
            self.insert(0, sentinel)
