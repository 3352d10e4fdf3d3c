"""The cluster fixtures, and savers of both colours on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis.asyncio

from redis_ckpt import AsyncRedisSaver, RedisSaver
from tests.cluster.servers import Cluster
from tests.savers import Facade, LoopThread
from tests.servers import HOST, REAL_KINDS


@pytest.fixture(scope="session", params=REAL_KINDS)
def clusters(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(request.param, tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(clusters: Cluster) -> Cluster:
    clusters.flush()
    return clusters


@pytest.fixture
def on_cluster(cluster: Cluster, colour: str, loop_thread: LoopThread) -> Iterator[Facade]:
    """A saver over a cluster client."""
    if colour == "sync":
        client = cluster.client()
        with RedisSaver(redis_client=client) as saver:
            yield Facade(saver, loop_thread)
        client.close()
    else:

        async def make() -> redis.asyncio.RedisCluster:
            return redis.asyncio.RedisCluster(host=HOST, port=cluster.port)

        async_client = loop_thread.run(make())
        yield Facade(AsyncRedisSaver(redis_client=async_client), loop_thread)
        loop_thread.run(async_client.aclose())
