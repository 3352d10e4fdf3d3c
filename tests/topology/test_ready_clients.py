"""Clients that are given, of each library and for each topology; credentials that change; what connections are told."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
import valkey
import valkey.asyncio
import valkey.asyncio.sentinel
import valkey.sentinel

from redis_ckpt import Ack, Retry
from tests.cluster.servers import Cluster
from tests.integration.graphs import Play, thread
from tests.integration.long_runs import WHOLE, counting
from tests.savers import Facade, LoopThread, cfg, put, steps, values
from tests.servers import HOST, REAL_KINDS, Server, on_real_servers
from tests.topology.sentinel import SERVICE, SentinelSetup

Make = Callable[..., Facade]
LIBRARIES = pytest.mark.parametrize("library", [redis, valkey], ids=["redis-py", "valkey-py"])
ONCE = Retry(attempts=0)


def use(saver: Facade) -> None:
    play = Play(saver)
    for name in ("t1", "t2", "t3", "t4"):  # on a cluster on several nodes
        assert play.invoke(play.app(counting()), {"round": 0}, thread(name))["log"] == WHOLE
    assert len({info.thread_id for info in saver.threads()}) == 4
    saver.copy_thread("t1", "copy")
    found = saver.get_tuple(cfg("copy"))
    assert values(found)["log"] == WHOLE
    for name in ("t1", "t2", "t3", "t4", "copy"):
        saver.delete_thread(name)
    assert saver.list(None) == []


def given(library: Any, colour: str, loop_thread: LoopThread, make: Callable[[Any], Any]) -> Any:
    """A client that `make` makes of the library's module for a colour, on the loop if it is of that kind."""

    async def on_loop() -> Any:
        return make(library.asyncio)

    return make(library) if colour == "sync" else loop_thread.run(on_loop())


def end(client: Any, colour: str, loop_thread: LoopThread) -> None:
    if colour == "sync":
        client.close()
    else:
        loop_thread.run(client.aclose())


@on_real_servers
@LIBRARIES
def test_a_client_for_one_server(
    library: Any, server: Server, make: Make, colour: str, loop_thread: LoopThread
) -> None:
    name = library.__name__.capitalize()
    client = given(
        library, colour, loop_thread, lambda module: getattr(module, name)(host=HOST, port=server.port, db=5)
    )
    use(make(redis_client=client))
    put(make(redis_client=client), 1, a=1)
    assert server.databases() == [5]
    end(client, colour, loop_thread)


@pytest.fixture(scope="module", params=REAL_KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(request.param, tmp_path_factory.mktemp("cluster"))
    yield made
    made.stop()


@LIBRARIES
def test_a_client_for_a_cluster(
    library: Any, cluster: Cluster, make: Make, colour: str, loop_thread: LoopThread
) -> None:
    name = f"{library.__name__.capitalize()}Cluster"
    client = given(library, colour, loop_thread, lambda module: getattr(module, name)(host=HOST, port=cluster.port))
    use(make(redis_client=client))
    end(client, colour, loop_thread)


@LIBRARIES
def test_a_client_for_a_service_of_sentinel(
    library: Any, calm_service: SentinelSetup, make: Make, colour: str, loop_thread: LoopThread
) -> None:
    manager = given(library, colour, loop_thread, lambda module: module.sentinel.Sentinel(calm_service.hosts))
    sentinels = list(manager.sentinels)  # redis-py may lose one
    client = manager.master_for(SERVICE, db=2)
    use(make(redis_client=client))
    saver = make(redis_client=client, ack=Ack(replicas=1, timeout=3))
    put(saver, 1, a=1)
    assert calm_service.replica.raw(db=2).dbsize()  # acknowledged is on the replica
    for each in (client, *sentinels):
        end(each, colour, loop_thread)


@on_real_servers
@LIBRARIES
def test_a_given_client_is_not_outlived_by_a_wait(
    library: Any, server: Server, make: Make, colour: str, loop_thread: LoopThread
) -> None:
    def made(module: Any) -> list[Any]:
        base = library.__name__.capitalize()
        single, cluster = getattr(module, base), getattr(module, f"{base}Cluster")
        manager = module.sentinel.Sentinel([(HOST, server.port)])
        found = [single(port=server.port, socket_timeout=2), manager.master_for(SERVICE, socket_timeout=2)]
        return found if colour == "sync" else [*found, cluster(host=HOST, port=server.port, socket_timeout=2)]

    for client in given(library, colour, loop_thread, made):
        with pytest.raises(ValueError, match="socket_timeout is 2"):
            make(redis_client=client, ack=Ack(timeout=2))
        end(client, colour, loop_thread)


class Rotating(redis.CredentialProvider):
    """Asks for new credentials at each connection, as providers of clouds do."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._numbers = itertools.count()
        self.asked = 0

    def get_credentials(self) -> tuple[str, str]:
        self.asked += 1
        password = f"pass-{next(self._numbers)}"
        rules = ("reset", "on", f">{password}", "~*", "+@all")
        self._server.raw().execute_command("ACL", "SETUSER", "agent", *rules)
        return "agent", password


@pytest.fixture
def provider(server: Server) -> Iterator[Rotating]:
    yield Rotating(server)
    server.raw().execute_command("ACL", "DELUSER", "agent")


def cut(server: Server) -> None:
    """Close all connections of the user, as a server does whose user has changed."""
    server.raw().execute_command("CLIENT", "KILL", "USER", "agent")


@on_real_servers
@pytest.mark.parametrize("ready", [False, True], ids=["url", "client"])
def test_credentials_that_change_are_asked_for_at_each_connection(
    server: Server, provider: Rotating, make: Make, colour: str, loop_thread: LoopThread, ready: bool
) -> None:
    client: Any = None
    if ready:
        options: dict[str, Any] = {"host": HOST, "port": server.port, "credential_provider": provider}
        client = given(redis, colour, loop_thread, lambda module: module.Redis(**options))
        saver = make(redis_client=client)
    else:
        saver = make(server.url, connection_args={"credential_provider": provider})
    for i in range(1, 5):
        put(saver, i, parent=i - 1 if i > 1 else None, a=i)
        cut(server)
    assert steps(saver.list(cfg())) == [4, 3, 2, 1]
    assert provider.asked >= 5
    if client is not None:
        end(client, colour, loop_thread)


@on_real_servers
def test_wrong_credentials_are_told_at_once(server: Server, make: Make) -> None:
    for url in (f"redis://agent:no@{HOST}:{server.port}", f"redis://nobody:p%40ss@{HOST}:{server.port}"):
        with pytest.raises(redis.AuthenticationError) as caught:
            put(make(url), 1, a=1)
        assert "p@ss" not in str(caught.value)


@on_real_servers
def test_user_and_password_of_a_url_are_decoded(server: Server, make: Make) -> None:
    password = "a/b@c:d#e?f%g h"
    server.raw().execute_command("ACL", "SETUSER", "a@b", "reset", "on", f">{password}", "~*", "+@all")
    try:
        saver = make(f"redis://a%40b:a%2Fb%40c%3Ad%23e%3Ff%25g%20h@{HOST}:{server.port}/1")
        put(saver, 1, a=1)
        assert server.databases() == [1]
    finally:
        server.raw().execute_command("ACL", "DELUSER", "a@b")


@on_real_servers
def test_connections_bear_the_name_that_is_asked_for(server: Server, make: Make) -> None:
    in_args = make(server.url, connection_args={"client_name": "orders"})
    in_url = make(f"{server.url}?client_name=tickets")
    nameless = make(server.url)
    for saver in (in_args, in_url, nameless):
        put(saver, 1, a=1)
    names = {client["name"] for client in server.raw().client_list() if client["cmd"] == "evalsha"}
    assert names == {"orders", "tickets", ""}


def test_a_name_and_a_database_of_a_service(calm_service: SentinelSetup, make: Make) -> None:
    put(make(calm_service.url + "/7?client_name=orders"), 1, a=1)
    (mine,) = [client for client in calm_service.primary.raw().client_list() if client["name"] == "orders"]
    assert (mine["cmd"], mine["db"]) == ("evalsha", "7")


def test_a_name_on_a_cluster(cluster: Cluster, make: Make) -> None:
    saver = make(cluster.url + "/0?client_name=orders", retry=ONCE)
    put(saver, 1, a=1)
    named = [client for node in cluster.nodes for client in node.raw().client_list() if client["name"] == "orders"]
    assert any(client["cmd"] == "evalsha" for client in named)
    saver.delete_thread("t")
