"""What a restricted user must be allowed: one line for single servers, and what it takes beyond on each topology.

The line is `RULES` on the keys of the prefix. Redis 6.2 sorts a few commands into other categories than later servers
do, so there WAIT and SELECT must be named.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START, StateGraph
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, RedisClusterException
from typing_extensions import TypedDict

from redis_ckpt import Ack, NotAcknowledgedError, Retry
from tests.cluster.servers import Cluster
from tests.integration.graphs import Builder, Play, thread
from tests.integration.long_runs import WHOLE, counting
from tests.savers import Facade, MakeSaver, cfg, put, steps, values
from tests.savers import wait_until as until
from tests.servers import HOST, REAL_KINDS, Server, on_real_servers
from tests.topology.sentinel import SentinelSetup

Make = Callable[..., Facade]
RULES = "+@read +@write +@scripting +@connection -@dangerous"
LATE = ("redis62",)
"""Servers of before Redis 7, on which WAIT and SELECT are in no category of the line."""
ACKED = Ack(replicas=1, timeout=8)
ONCE = Retry(attempts=0)


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


def approval() -> Builder:
    """A graph with a subgraph."""
    inner: Any = StateGraph(Log)
    inner.add_node("act", lambda state: {"log": ["acted"]})
    inner.add_edge(START, "act")
    outer: Any = StateGraph(Log)
    outer.add_node("before", lambda state: {"log": ["before"]})
    outer.add_node("inner", inner.compile())
    outer.add_node("after", lambda state: {"log": ["after"]})
    for source, target in ((START, "before"), ("before", "inner"), ("inner", "after"), ("after", END)):
        outer.add_edge(source, target)
    made: Builder = outer
    return made


def allow(servers: Sequence[Server], prefix: str, *more: str) -> None:
    """On each server a user `agent` with the line, and `more`."""
    for server in servers:
        rules = ("reset", "on", ">pass", f"~{prefix}:*", *RULES.split(), *more)
        server.raw().execute_command("ACL", "SETUSER", "agent", *rules)


def use(saver: Facade) -> None:
    """Runs with an approval, a look back and a fork; then all that is done to whole threads."""
    play = Play(saver)
    app = play.app(approval(), interrupt_before=["inner"])
    play.invoke(app, {"log": []}, thread())
    assert play.state(app, thread(), subgraphs=True).next == ("inner",)
    play.invoke(app, None, thread())
    done = ["before", "before", "acted", "after"]  # a subgraph answers all that it has
    assert play.state(app, thread()).values["log"] == done
    first = play.history(app, thread())[-1]
    fork = play.update(app, first.config, {"log": ["forked"]}, as_node="__start__")
    assert play.history(app, fork)
    assert play.invoke(play.app(counting()), {"round": 0}, thread("r", run_id="r1"))["log"] == WHOLE

    saver.copy_thread("r", "copy")
    assert saver.get_tuple(cfg("copy")) is not None
    saver.get_delta_channel_history(config=cfg("r"), channels=["log"])
    assert saver.expire("copy", 1000)
    assert saver.persist("copy")
    assert saver.sweep(["r"], keep_last=3).checkpoints
    found = saver.stats("r")
    assert found is not None
    assert found.checkpoints.count == 3
    assert saver.stats().threads == 3
    assert {info.thread_id for info in saver.threads()} == {"t", "r", "copy"}
    saver.prune(["copy"])
    assert len(saver.list(cfg("copy", ""))) == 1
    put(saver, 1, t="by-run", meta={"run_id": "r2"}, a=1)
    saver.delete_for_runs(["r2"])
    assert steps(saver.list(cfg("by-run"))) == []
    for name in ("t", "r", "copy"):
        saver.delete_thread(name)
    assert saver.list(None) == []


@pytest.fixture
def restricted(server: Server) -> Iterator[str]:
    """The URL of a user with the line and no more."""
    allow([server], "shop")
    yield f"redis://agent:pass@{HOST}:{server.port}"
    server.raw().execute_command("ACL", "DELUSER", "agent")


@pytest.fixture
def one(make_saver: MakeSaver) -> Make:
    return make_saver


@on_real_servers
def test_the_line_is_enough_for_one_server(restricted: str, one: Make, server: Server) -> None:
    use(one(redis_url=restricted, prefix="shop"))
    assert all(key.startswith(b"shop:") for key in server.raw().scan_iter())


@on_real_servers
def test_threads_expire_under_the_line(restricted: str, one: Make, server: Server) -> None:
    saver = one(redis_url=restricted, prefix="shop", ttl=0.3, refresh_on_read=True, keep_last=2)
    for i in range(1, 5):
        put(saver, i, parent=i - 1 if i > 1 else None, a=i)
    saver.get_tuple(cfg())  # begins the time anew
    until(lambda: not server.raw().dbsize())


@on_real_servers
def test_keys_of_others_stay_theirs(restricted: str, one: Make, server: Server) -> None:
    put(one(redis_url=server.url, prefix="other"), 1, a="theirs")
    saver = one(redis_url=restricted, prefix="other")
    for reach in (
        lambda: saver.get_tuple(cfg()),
        lambda: put(saver, 2, parent=1, a="ours"),
        lambda: saver.delete_thread("t"),
    ):
        with pytest.raises(NoPermissionError):
            reach()
    assert values(one(redis_url=server.url, prefix="other").get_tuple(cfg())) == {"a": "theirs"}


@on_real_servers
def test_another_database_is_chosen_by_select(restricted: str, one: Make, server: Server) -> None:
    saver = one(redis_url=f"{restricted}/3", prefix="shop", retry=ONCE)
    if server.kind in LATE:
        with pytest.raises(NoPermissionError):
            put(saver, 1, a=1)
        allow([server], "shop", "+select")
    put(saver, 1, a=1)
    assert values(saver.get_tuple(cfg())) == {"a": 1}


def test_acknowledgements_are_waited_for_by_wait(calm_service: SentinelSetup, make: Make) -> None:
    url = calm_service.url.replace("://", "://agent:pass@")
    allow([calm_service.primary], "shop")
    saver = make(url, prefix="shop", ack=ACKED)
    if calm_service.kind in LATE:
        with pytest.raises(NotAcknowledgedError, match="permission"):
            put(saver, 1, a=1)
        allow([calm_service.primary], "shop", "+wait")
        saver.delete_thread("t")  # the write stands all the same
    use(saver)


@pytest.fixture(scope="module", params=REAL_KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(request.param, tmp_path_factory.mktemp("cluster"))
    yield made
    made.stop()


def test_a_cluster_tells_its_slots(cluster: Cluster, make: Make) -> None:
    url = cluster.url.replace("://", "://agent:pass@")
    allow(cluster.nodes, "shop")
    with pytest.raises(RedisClusterException):
        put(make(url, prefix="shop", retry=ONCE), 1, a=1)
    allow(cluster.nodes, "shop", "+cluster|slots")
    use(make(url, prefix="shop"))


@pytest.fixture
def sentinels_with_users(calm_service: SentinelSetup) -> SentinelSetup:
    """Sentinels with a user of their own, whom the servers do not know."""
    for sentinel in calm_service.sentinels:
        rules = ("reset", "on", ">look", "-@all", "+auth", "+sentinel", "+ping", "+hello")
        sentinel.raw().execute_command("ACL", "SETUSER", "seeker", *rules)
    allow([calm_service.primary], "shop")
    return calm_service


def test_sentinels_have_users_of_their_own(sentinels_with_users: SentinelSetup, make: Make) -> None:
    url = sentinels_with_users.url.replace("://", "://agent:pass@")
    seeker = {"username": "seeker", "password": "look"}
    use(make(url, prefix="shop", connection_args={"sentinel_kwargs": seeker}))
    wrong = seeker | {"password": "guess"}
    with pytest.raises(RedisConnectionError):
        put(make(url, prefix="shop", retry=ONCE, connection_args={"sentinel_kwargs": wrong}), 1, a=1)
