"""Savers over TLS: with a private CA, with certificates of their own, and refused where the other side is not known."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from redis_ckpt import Retry
from tests.cluster.servers import Cluster
from tests.integration.graphs import Play, thread
from tests.integration.long_runs import WHOLE, counting
from tests.proxy import Proxy
from tests.savers import Facade, LoopThread, cfg, put, values
from tests.servers import HOST, Server, on_real_servers
from tests.topology.sentinel import SERVICE, SentinelSetup
from tests.topology.tls import Authority, Front

Make = Callable[..., Facade]
ONCE = Retry(attempts=0)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def front(server: Server, authority: Authority) -> Iterator[Front]:
    with Front(server.port, authority.server_context(HOST)) as running:
        yield running


def use(saver: Facade) -> None:
    """A run, and what is left of it."""
    play = Play(saver)
    assert play.invoke(play.app(counting()), {"round": 0}, thread())["log"] == WHOLE
    assert [info.thread_id for info in saver.threads()] == ["t"]
    put(saver, 1, t="big", a="x" * 300_000)  # more than one record of TLS
    saver.copy_thread("big", "copy")
    assert values(saver.get_tuple(cfg("copy"))) == {"a": "x" * 300_000}
    for name in ("t", "big", "copy"):
        saver.delete_thread(name)


@on_real_servers
def test_a_private_ca_is_trusted_when_it_is_named(front: Front, authority: Authority, make: Make) -> None:
    data = Path(authority.file).read_text("ascii")
    for url, args in (
        (front.url, {"ssl_ca_certs": authority.file}),
        (front.url, {"ssl_ca_data": data}),
        (f"{front.url}?ssl_ca_certs={authority.file}", None),
    ):
        use(make(url, connection_args=args, retry=ONCE))


@on_real_servers
def test_what_tls_says_behind_the_handshake_is_no_reply(front: Front, authority: Authority, make: Make) -> None:
    """Two tickets lie on a new connection, before anything was asked."""
    for i in range(20):
        saver = make(front.url, connection_args={"ssl_ca_certs": authority.file}, retry=ONCE)
        put(saver, 1, a=i)
        saver.threads()  # by way of another method of redis-py
        saver.close()
    assert front.served <= 2 * 20


@on_real_servers
def test_a_client_with_a_private_ca_is_taken(
    front: Front, authority: Authority, make: Make, colour: str, loop_thread: LoopThread
) -> None:
    options: dict[str, Any] = {"host": HOST, "port": front.port, "ssl": True, "ssl_ca_certs": authority.file}
    if colour == "sync":
        with redis.Redis(**options) as client:
            use(make(redis_client=client))
    else:
        asynchronous = redis.asyncio.Redis(**options)
        use(make(redis_client=asynchronous))
        loop_thread.run(asynchronous.aclose())


@on_real_servers
def test_an_unknown_ca_is_refused(front: Front, tmp_path: Path, make: Make, raw: redis.Redis) -> None:
    for args in ({"ssl_ca_certs": Authority(tmp_path).file}, {}):
        saver = make(front.url, connection_args=args, retry=ONCE)
        with pytest.raises(RedisConnectionError, match=r"(?i)certificate verify failed"):
            put(saver, 1, a=1)
    assert not raw.dbsize()
    # whoever turns the check off is not asked
    put(make(front.url, connection_args={"ssl_cert_reqs": "none", "ssl_check_hostname": False}), 1, a=1)


@on_real_servers
def test_a_certificate_for_another_host_is_refused(
    server: Server, authority: Authority, make: Make, raw: redis.Redis
) -> None:
    with Front(server.port, authority.server_context("elsewhere.example.org")) as front:
        saver = make(front.url, connection_args={"ssl_ca_certs": authority.file}, retry=ONCE)
        with pytest.raises(RedisConnectionError, match=r"(?i)certificate verify failed|doesn't match"):
            put(saver, 1, a=1)
    assert not raw.dbsize()


@on_real_servers
def test_a_server_may_demand_certificates_of_its_clients(
    server: Server, authority: Authority, tmp_path: Path, make: Make, raw: redis.Redis
) -> None:
    stranger = Authority(tmp_path).client_files()
    with Front(server.port, authority.server_context(HOST, demands_certificate=True)) as front:
        for files in ((None, None), stranger):
            args = {"ssl_ca_certs": authority.file, "ssl_certfile": files[0], "ssl_keyfile": files[1]}
            with pytest.raises(RedisConnectionError):
                put(make(front.url, connection_args=args, retry=ONCE), 1, a=1)
        assert (front.served, raw.dbsize()) == (0, 0)
        certfile, keyfile = authority.client_files()
        use(
            make(
                front.url,
                connection_args={"ssl_ca_certs": authority.file, "ssl_certfile": certfile, "ssl_keyfile": keyfile},
            )
        )
        assert front.served


@on_real_servers
def test_no_word_is_said_in_clear(server: Server, authority: Authority, make: Make) -> None:
    """A URL of TLS never falls back: a server without it gets no password and no data."""
    heard: list[bytes] = []
    with Proxy(server.port) as proxy:
        proxy.listen = heard.append
        args = {"ssl_ca_certs": authority.file, "socket_connect_timeout": 0.3, "socket_timeout": 0.3}
        saver = make(f"rediss://:secret@{HOST}:{proxy.port}", connection_args=args, retry=ONCE)
        with pytest.raises((RedisConnectionError, RedisTimeoutError)):
            put(saver, 1, a="plain")
    assert heard
    assert all(word not in b"".join(heard) for word in (b"secret", b"AUTH", b"plain"))


def test_a_service_of_sentinel_over_tls(calm_service: SentinelSetup, authority: Authority, make: Make) -> None:
    """Sentinels and servers speak TLS alike; what sentinels tell is where the front of the primary listens."""
    context = authority.server_context(HOST)
    with Front(calm_service.primary.port, context) as primary, contextlib.ExitStack() as stack:
        told = {calm_service.primary.port: primary.port}
        fronts = [stack.enter_context(Front(port, context, told)) for _, port in calm_service.hosts]
        url = f"rediss+sentinel://{','.join(f'{HOST}:{front.port}' for front in fronts)}/{SERVICE}"
        for more in ({}, {"sentinel_kwargs": {"client_name": "seeker"}}):  # options of their own do not put TLS off
            use(make(url, connection_args={"ssl_ca_certs": authority.file, **more}, retry=ONCE))
        assert primary.served
        with pytest.raises(RedisConnectionError):
            put(make(url, retry=ONCE), 1, a=1)


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(request.param, tmp_path)
    yield made
    made.stop()


@pytest.mark.parametrize("cluster", ["valkey"], indirect=True)
def test_a_cluster_over_tls(cluster: Cluster, authority: Authority, make: Make) -> None:
    """Nodes tell their own ports; `address_remap` is redis-py's option for what stands in front of them."""
    context = authority.server_context(HOST)
    with contextlib.ExitStack() as stack:
        fronts = {node.port: stack.enter_context(Front(node.port, context)) for node in cluster.nodes}
        ports = {port: front.port for port, front in fronts.items()}
        args = {
            "ssl_ca_certs": authority.file,
            "address_remap": lambda address: (HOST, ports.get(address[1], address[1])),
        }
        url = f"rediss+cluster://{HOST}:{fronts[cluster.port].port}"
        use(make(url, connection_args=args, retry=ONCE))
        assert all(front.served for front in fronts.values())
