"""The fixtures: servers, colours, savers, and the key audit that follows every test on a server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import fakeredis
import pytest
import redis
from hypothesis import HealthCheck, settings

from redis_ckpt import AsyncRedisSaver, RedisSaver
from tests.audit import audit
from tests.groups import GROUP_KINDS, SUITE, start_group
from tests.proxy import Proxy
from tests.savers import Facade, LoopThread
from tests.savers import MakeSaver as MakeSaver
from tests.servers import KINDS, Server, start

# Machines differ and are shared: how long an example takes says nothing.
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")


def pytest_report_header() -> str:
    return f"servers: {', '.join(KINDS)}"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "unaudited(why): the test damages keys on purpose, no audit after it")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Before Python 3.11 LangGraph itself cannot interrupt or look up its config in an asyncio run (a new task does not
    # take a context), so there real graphs run in the sync colour only.
    if sys.version_info < (3, 11):
        graphs = ("test_graphs_", "test_monitor", "test_trips")
        items[:] = [i for i in items if not (i.path.name.startswith(graphs) and "async" in i.name)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test runs on each kind of server, unless it chooses itself; the behaviour suite on groups of servers, too."""
    marks = metafunc.definition.iter_markers("parametrize")
    if "server" in metafunc.fixturenames and not any("server" in _names(mark.args[0]) for mark in marks):
        in_suite = metafunc.module.__name__.rpartition(".")[2] in SUITE
        metafunc.parametrize("server", [*KINDS, *(GROUP_KINDS if in_suite else ())], indirect=True)


def _names(argnames: str | Sequence[str]) -> list[str]:
    return [name.strip() for name in argnames.split(",")] if isinstance(argnames, str) else list(argnames)


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[str], Server]]:
    """The server of a kind, started when it is first asked for; one set for each xdist worker."""
    started: dict[str, Server] = {}

    def get(kind: str) -> Server:
        if kind not in started:
            started[kind] = start_group(kind) if kind in GROUP_KINDS else start(kind)
        return started[kind]

    yield get
    for server in started.values():
        server.stop()


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: Callable[[str], Server]) -> Iterator[Server]:
    """An empty server of each kind in turn."""
    found = servers(request.param)
    found.flush()
    yield found
    found.release()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy in front of the server, which counts what goes through it, and can cut it."""
    with Proxy(server.port) as running:
        yield running


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    """Which of the two savers a facade is made of."""
    name: str = request.param
    return name


@pytest.fixture
def protocol() -> int | None:
    """The version of RESP; None is redis-py's choice. Parametrize a test with "protocol" to ask for both."""
    return None


@pytest.fixture
def raw(server: Server) -> redis.Redis:
    """A client of the server that answers bytes, to seed and to read what is stored."""
    return server.raw()


@pytest.fixture
def loop_thread() -> Iterator[LoopThread]:
    """The loop that the async colour runs on; at the end nothing may be left running on it."""
    thread = LoopThread()
    yield thread
    leftovers = thread.leftovers()
    thread.stop()
    assert not leftovers, leftovers


@pytest.fixture
def make_saver(server: Server, colour: str, protocol: int | None, loop_thread: LoopThread) -> Iterator[MakeSaver]:
    """Builds savers of this colour on this server; all are closed at the end.

    Keywords go to the constructor, but for `db` and `protocol`: they choose the database and the version of RESP.
    """
    made: list[Facade] = []
    clients: list[fakeredis.FakeAsyncRedis] = []

    def make(*, db: int = 0, protocol: int | None = protocol, **kwargs: Any) -> Facade:
        client_options: dict[str, Any] = {"db": db} | ({"protocol": protocol} if protocol else {})
        own = "redis_url" in kwargs or "redis_client" in kwargs
        if not own and server.url is None:
            kwargs["redis_client"] = client = (
                server.raw(**client_options) if colour == "sync" else server.araw(**client_options)
            )
            if isinstance(client, fakeredis.FakeAsyncRedis):
                clients.append(client)
        elif not own:
            kwargs["redis_url"] = f"{server.url}/{db}" + (f"?protocol={protocol}" if protocol else "")
        made.append(Facade((RedisSaver if colour == "sync" else AsyncRedisSaver)(**kwargs), loop_thread))
        return made[-1]

    yield make
    for facade in made:
        facade.close()
    for client in clients:
        loop_thread.run(client.aclose())


@pytest.fixture
def saver(make_saver: MakeSaver) -> Facade:
    return make_saver()


@pytest.fixture(autouse=True)
def key_audit(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a test on a server every key that is left matches the table of the data model."""
    server: Server | None = None
    if "server" in request.fixturenames:
        server = request.getfixturevalue("server")
    yield
    if server is not None and request.node.get_closest_marker("unaudited") is None:
        wrong = audit(server)
        assert not wrong, "\n".join(wrong)
