"""Many tasks on a cluster: one pipeline for each node, and redirections that are followed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis.asyncio

from redis_ckpt import AsyncRedisSaver
from redis_ckpt._cluster import ClusterSender
from tests.cluster.servers import Cluster
from tests.savers import LoopThread, arguments, cfg, values
from tests.servers import HOST

CLIENT = "coalescing"
NAMES = [f"thread-{n}" for n in range(60)]


@pytest.fixture
def client(cluster: Cluster, loop_thread: LoopThread) -> Iterator[redis.asyncio.RedisCluster]:
    async def make() -> redis.asyncio.RedisCluster:
        return await redis.asyncio.RedisCluster(host=HOST, port=cluster.port, client_name=CLIENT).initialize()

    made = loop_thread.run(make())
    yield made
    loop_thread.run(made.aclose())


@pytest.fixture
def saver(client: redis.asyncio.RedisCluster, loop_thread: LoopThread) -> AsyncRedisSaver:
    made = AsyncRedisSaver(redis_client=client)
    loop_thread.run(made.asetup())
    loop_thread.run(fill(made, 1))
    return made


async def fill(saver: AsyncRedisSaver, i: int) -> None:
    parent = i - 1 if i > 1 else None
    await asyncio.gather(*(saver.aput(*arguments(i, t=name, parent=parent, mark=f"{name}-{i}")) for name in NAMES))


async def check(saver: AsyncRedisSaver, i: int) -> None:
    found = await asyncio.gather(*(saver.aget_tuple(cfg(name)) for name in NAMES))
    assert [values(item) for item in found] == [{"mark": f"{name}-{i}"} for name in NAMES]


def commands(cluster: Cluster) -> list[int]:
    return [int(node.raw().info("commandstats")["cmdstat_evalsha"]["calls"]) for node in cluster.nodes]


def connections(cluster: Cluster) -> list[int]:
    mine = {"cmd": "evalsha", "name": CLIENT}
    return [sum(1 for c in node.raw().client_list() if mine.items() <= c.items()) for node in cluster.nodes]


def test_many_tasks_use_one_connection_of_each_node(
    saver: AsyncRedisSaver, cluster: Cluster, loop_thread: LoopThread
) -> None:
    before = commands(cluster)
    loop_thread.run(check(saver, 1))
    asked = [after - then for after, then in zip(commands(cluster), before, strict=True)]
    assert sum(asked) == len(NAMES)
    assert all(asked)
    assert connections(cluster) == [1, 1, 1]
    (line,) = saver._wire._lines.values()
    assert isinstance(line.sender, ClusterSender)
    assert len(line.sender._lines) == 3


def test_a_command_that_is_sent_to_the_wrong_node_is_sent_on(
    saver: AsyncRedisSaver, client: redis.asyncio.RedisCluster, loop_thread: LoopThread
) -> None:
    async def scenario() -> None:
        slots: Any = client.nodes_manager.slots_cache
        homes = list({id(nodes): nodes for nodes in slots.values()}.values())
        wrong = {id(nodes): homes[(n + 1) % len(homes)] for n, nodes in enumerate(homes)}
        slots.update({slot: wrong[id(nodes)] for slot, nodes in slots.items()})  # as if all slots had moved
        await fill(saver, 2)
        await check(saver, 2)

    loop_thread.run(scenario())


def test_slots_that_move_while_scripts_are_forgotten_are_followed(
    saver: AsyncRedisSaver, client: redis.asyncio.RedisCluster, cluster: Cluster, loop_thread: LoopThread
) -> None:
    async def scenario() -> None:
        for i in (2, 3):
            for node in cluster.nodes:
                node.raw().script_flush()
            slots: Any = client.nodes_manager.slots_cache
            first = next(iter(slots.values()))
            slots.update(dict.fromkeys(slots, first))
            await fill(saver, i)
            await check(saver, i)

    loop_thread.run(scenario())


def test_connections_that_nodes_have_closed_are_opened_again(
    saver: AsyncRedisSaver, cluster: Cluster, loop_thread: LoopThread
) -> None:
    for i in range(2, 5):
        for node in cluster.nodes:
            node.raw().client_kill_filter(_type="normal")
        loop_thread.run(fill(saver, i))
        loop_thread.run(check(saver, i))


def test_slots_that_nobody_covers_and_cancelled_callers_leave_the_others_alone(
    saver: AsyncRedisSaver, client: redis.asyncio.RedisCluster, loop_thread: LoopThread
) -> None:
    async def scenario() -> None:
        slots: Any = client.nodes_manager.slots_cache
        for slot in list(slots)[::2]:
            del slots[slot]
        tasks = [asyncio.create_task(saver.aget_tuple(cfg(name))) for name in NAMES]
        for task in tasks[::3]:
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.nodes_manager.initialize()
        await check(saver, 1)

    loop_thread.run(scenario())


def test_forgotten_scripts_are_loaded_on_every_node_that_needs_them(
    saver: AsyncRedisSaver, cluster: Cluster, loop_thread: LoopThread
) -> None:
    for i in (2, 3):
        for node in cluster.nodes:
            node.raw().script_flush()
            node.raw().config_resetstat()
        loop_thread.run(fill(saver, i))
        stats = [node.raw().info("commandstats") for node in cluster.nodes]
        assert all(1 <= found["cmdstat_script|load"]["calls"] <= 6 for found in stats if "cmdstat_script|load" in found)
        loop_thread.run(check(saver, i))
