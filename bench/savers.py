"""The savers that are compared, each a row of the tables, and the servers under them.

All servers are reached over TCP on the loopback, but for the rows that say otherwise. All of them keep their data on
disk the way they do by default when asked to keep it: PostgreSQL and SQLite wait for the disk at each commit; Valkey
and Redis run with the append-only file on (`appendfsync everysec`), as `embedded:///path` does. The rows with
`synchronous_commit=off` give PostgreSQL the same promise as the append-only file: what was acknowledged in the last
second may be lost in a crash of the machine.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from bench.children import stop_in_order
from bench.drivers import Awaiting, Blocking, Driver
from bench.postgres import postgres
from redis_ckpt import AsyncRedisSaver, RedisSaver
from tests.servers import BINARIES, Server, start

POOL_SIZE = 20
RELAXED = "-c synchronous_commit=off"
APPEND_ONLY = ("--appendonly", "yes", "--appendfsync", "everysec")
STACK_URL = "BENCH_REDIS_STACK_URL"


class Servers:
    """The servers of one run, each started when the first saver wants it; all are stopped at the end of the block."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.loop = asyncio.new_event_loop()
        self._stack.callback(self.loop.close)
        self.sockets: dict[str, Path] = {}

    def __enter__(self) -> Servers:
        stop_in_order()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def folder(self) -> Path:
        """A new empty folder that goes with the servers."""
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="ckpt-bench-")))

    @cached_property
    def sqlite(self) -> Path:
        """The file of SQLite."""
        return self.folder() / "checkpoints.sqlite"

    @cached_property
    def postgres(self) -> str:
        """The connection string of a PostgreSQL server with the savers' tables in it."""
        conninfo = self._stack.enter_context(postgres())
        with PostgresSaver.from_conn_string(conninfo) as saver:
            saver.setup()
        return conninfo

    @cached_property
    def valkey(self) -> Server:
        """A Valkey server; it listens on a unix socket, too."""
        return self._start("valkey")

    @cached_property
    def redis62(self) -> Server:
        """A Redis 6.2 server."""
        return self._start("redis62")

    def _start(self, kind: str) -> Server:
        folder = self.folder()
        server = start(kind, *APPEND_ONLY, "--dir", str(folder), "--unixsocket", str(folder / "socket"))
        self._stack.callback(server.stop)
        self.sockets[kind] = folder / "socket"
        return server


Open = Callable[[Servers], Any]


@dataclass(frozen=True)
class Row:
    """One saver on one store. `store` names what several rows share: a thread that one wrote the others can read."""

    name: str
    title: str
    store: str
    opener: Callable[[Servers], Any]
    """A context manager of the saver, an async one if the row is."""
    is_async: bool = False
    why_not: Callable[[], str] = lambda: ""
    """What is missing for this row, empty if nothing is."""

    @property
    def is_ours(self) -> bool:
        """Whether it is a row of this library."""
        return self.store in ("valkey", "redis62")

    @contextmanager
    def open(self, servers: Servers) -> Iterator[Driver]:
        """A driver on a saver of its own, set up."""
        if not self.is_async:
            with self.opener(servers) as saver:
                yield Blocking(saver)
            return
        context = self.opener(servers)
        driver = Awaiting(servers.loop.run_until_complete(context.__aenter__()), servers.loop)
        try:
            yield driver
        finally:
            servers.loop.run_until_complete(context.__aexit__(None, None, None))


@contextmanager
def _memory(servers: Servers) -> Iterator[InMemorySaver]:
    yield InMemorySaver()


class _AsyncMemory:
    """InMemorySaver has the async methods, but is no resource."""

    async def __aenter__(self) -> InMemorySaver:
        return InMemorySaver()

    async def __aexit__(self, *error: object) -> None:
        return None


@contextmanager
def _sqlite(servers: Servers) -> Iterator[SqliteSaver]:
    with SqliteSaver.from_conn_string(str(servers.sqlite)) as saver:
        saver.setup()
        yield saver


def connection_options(options: str = "") -> dict[str, Any]:
    """What the documentation of PostgresSaver asks of its connections."""
    return {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row, "options": options}


def postgres_saver(conninfo: str, options: str = "") -> Any:
    """PostgresSaver on a pool."""

    @contextmanager
    def opened() -> Iterator[PostgresSaver]:
        pool: ConnectionPool[psycopg.Connection[dict[str, Any]]] = ConnectionPool(
            conninfo, kwargs=connection_options(options), min_size=1, max_size=POOL_SIZE, open=False
        )
        with pool:
            yield PostgresSaver(pool)

    return opened()


class AsyncPostgres:
    """AsyncPostgresSaver on a pool."""

    def __init__(self, conninfo: str, options: str = "", least: int = 1) -> None:
        self._conninfo, self._options, self._least = conninfo, options, least

    async def __aenter__(self) -> AsyncPostgresSaver:
        self.pool: AsyncConnectionPool[psycopg.AsyncConnection[dict[str, Any]]] = AsyncConnectionPool(
            self._conninfo,
            kwargs=connection_options(self._options),
            min_size=self._least,
            max_size=POOL_SIZE,
            open=False,
            timeout=120.0,
        )
        await self.pool.open(wait=True)
        return AsyncPostgresSaver(self.pool)

    async def __aexit__(self, *error: object) -> None:
        await self.pool.close()


def _redis(kind: str) -> Open:
    return lambda servers: RedisSaver(getattr(servers, kind).url)


def _redis_unix(servers: Servers) -> RedisSaver:
    assert servers.valkey.real
    return RedisSaver(f"unix://{servers.sockets['valkey']}")


def _aredis(kind: str) -> Open:
    return lambda servers: AsyncRedisSaver(getattr(servers, kind).url)


def _stack_saver(servers: Servers) -> Any:
    """The saver of langgraph-checkpoint-redis, on a server with its modules."""
    module = importlib.import_module("langgraph.checkpoint.redis")

    @contextmanager
    def opened() -> Iterator[Any]:
        with module.RedisSaver.from_conn_string(os.environ[STACK_URL]) as saver:
            saver.setup()
            yield saver

    return opened()


def _aws_saver(servers: Servers) -> Any:
    """ValkeySaver of langgraph-checkpoint-aws."""
    module = importlib.import_module("langgraph_checkpoint_aws")
    return module.ValkeySaver.from_conn_string(servers.valkey.url)


def _unless_binary(kind: str) -> Callable[[], str]:
    return lambda: "" if kind in BINARIES else f"no {kind} binary for this Python"


def _lacks(module: str, package: str, variable: str = "") -> Callable[[], str]:
    def why() -> str:
        try:
            missing = importlib.util.find_spec(module) is None
        except ModuleNotFoundError:
            missing = True
        if missing:
            return f"{package} is not installed"
        return f"{variable} is not set" if variable and not os.environ.get(variable) else ""

    return why


ROWS = {
    row.name: row
    for row in (
        Row("memory", "InMemorySaver", "memory", _memory),
        Row("sqlite", "SqliteSaver, file", "sqlite", _sqlite),
        Row("postgres", "PostgresSaver", "postgres", lambda s: postgres_saver(s.postgres)),
        Row(
            "postgres-off",
            "PostgresSaver, synchronous_commit=off",
            "postgres",
            lambda s: postgres_saver(s.postgres, RELAXED),
        ),
        Row("apostgres", "AsyncPostgresSaver", "postgres", lambda s: AsyncPostgres(s.postgres), True),
        Row("redis", "RedisSaver, Valkey", "valkey", _redis("valkey")),
        Row("redis-unix", "RedisSaver, Valkey, unix socket", "valkey", _redis_unix),
        Row("aredis", "AsyncRedisSaver, Valkey", "valkey", _aredis("valkey"), True),
        Row("redis62", "RedisSaver, Redis 6.2", "redis62", _redis("redis62"), why_not=_unless_binary("redis62")),
        Row("aredis62", "AsyncRedisSaver, Redis 6.2", "redis62", _aredis("redis62"), True, _unless_binary("redis62")),
        Row(
            "stack",
            "RedisSaver of langgraph-checkpoint-redis",
            "stack",
            _stack_saver,
            why_not=_lacks("langgraph.checkpoint.redis", "langgraph-checkpoint-redis", STACK_URL),
        ),
        Row(
            "aws",
            "ValkeySaver of langgraph-checkpoint-aws",
            "aws",
            _aws_saver,
            why_not=_lacks("langgraph_checkpoint_aws", "langgraph-checkpoint-aws"),
        ),
    )
}
PRESENT = {name: row for name, row in ROWS.items() if not row.why_not()}
AMEMORY = Row("memory", "InMemorySaver", "memory", lambda s: _AsyncMemory(), True)


@contextmanager
def another_worker(row: Row, driver: Driver, servers: Servers) -> Iterator[Driver]:
    """The same saver as in another process, which remembers nothing of any thread however often it reads it."""
    if not row.is_ours:
        yield driver  # these savers remember nothing
        return
    cls = AsyncRedisSaver if row.is_async else RedisSaver
    url = f"unix://{servers.sockets[row.store]}" if row is ROWS["redis-unix"] else getattr(servers, row.store).url
    other = Row(row.name, row.title, row.store, lambda s: cls(url, cache_bytes=0), row.is_async)
    with other.open(servers) as opened:
        yield opened
