"""Many tasks on few connections, on real servers: round trips, cancellation, broken connections, bounds."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import redis

from redis_ckpt import AsyncRedisSaver, ClosedError
from redis_ckpt._aclient import AsyncWire
from redis_ckpt._coalesce import Pipelining
from redis_ckpt._source import Source
from tests.monitor import monitor
from tests.proxy import Proxy
from tests.savers import IDS, LoopThread, arguments, cfg, values, wait_until, writes
from tests.servers import Server, on_real_servers

pytestmark = on_real_servers
CONNECTIONS = Pipelining().connections
TASKS = 64

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def run(loop_thread: LoopThread) -> Run:
    return loop_thread.run


def saver_at(url: str, options: Any = None, **limits: int) -> AsyncRedisSaver:
    saver = AsyncRedisSaver(url, connection_args=options)
    if limits:
        saver._wire = AsyncWire("AsyncRedisSaver", Source(url, None, options), Pipelining(**limits))
    return saver


async def fill(saver: AsyncRedisSaver, threads: int, size: int = 10) -> list[str]:
    """One checkpoint in each of so many threads, which says whose it is."""
    names = [f"thread-{n}" for n in range(threads)]
    await saver.asetup()
    await asyncio.gather(*(saver.aput(*arguments(1, t=name, mark=name * size)) for name in names))
    return names


async def check(saver: AsyncRedisSaver, names: list[str], size: int = 10) -> None:
    found = await asyncio.gather(*(saver.aget_tuple(cfg(name)) for name in names))
    assert [values(item) for item in found] == [{"mark": name * size} for name in names]


def test_many_tasks_share_round_trips_on_few_connections(proxy: Proxy, run: Run) -> None:
    saver = saver_at(proxy.url)
    names = run(fill(saver, TASKS))
    proxy.delay = 0.02  # so that all tasks have asked before the first is answered
    with proxy.measure() as counts:
        run(check(saver, names))
    assert counts.connections == 0
    assert counts.trips <= 2 * CONNECTIONS
    run(saver.aclose())
    assert proxy.counts().connections <= CONNECTIONS


def test_a_lone_call_is_one_round_trip_on_one_connection(proxy: Proxy, run: Run) -> None:
    saver = saver_at(proxy.url)
    names = run(fill(saver, 1))

    async def one_by_one() -> None:
        for _ in range(20):
            await check(saver, names)

    with proxy.measure() as counts:
        run(one_by_one())
    assert (counts.trips, counts.connections) == (20, 0)
    run(saver.aclose())
    assert proxy.counts().connections == 1


def test_five_hundred_runs_at_once_work_with_the_defaults(server: Server, raw: redis.Redis, run: Run) -> None:
    saver = saver_at(server.url or "")
    before = len(raw.client_list())

    async def one(n: int) -> None:
        name = f"run-{n}"
        assert await saver.aget_tuple(cfg(name)) is None
        for i in range(3):
            await saver.aput(*arguments(i, t=name, parent=i - 1 if i else None, a=f"{name}-{i}"))
            await asyncio.gather(
                *(saver.aput_writes(cfg(name, "", IDS[i]), [("x", k)], f"task-{k}", f"~{k}") for k in range(3))
            )
        found = await saver.aget_tuple(cfg(name))
        assert values(found) == {"a": f"{name}-2"}
        assert writes(found) == [(f"task-{k}", "x", k) for k in range(3)]

    async def together() -> int:
        await asyncio.gather(*(one(n) for n in range(500)))
        return len(raw.client_list())

    assert run(together()) <= before + CONNECTIONS
    run(saver.aclose())


@pytest.mark.parametrize("protocol", [2, 3])
def test_replies_never_cross_however_callers_are_cancelled(server: Server, run: Run, protocol: int) -> None:
    saver = saver_at(f"{server.url}?protocol={protocol}")
    names = run(fill(saver, 200))

    async def scenario() -> None:
        for _ in range(10):
            tasks = [asyncio.create_task(saver.aget_tuple(cfg(name))) for name in names]
            for task in random.sample(tasks, 60):
                for _ in range(random.randrange(3)):
                    await asyncio.sleep(0)
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            for name, item in zip(names, found, strict=True):
                if not isinstance(item, asyncio.CancelledError):
                    assert not isinstance(item, BaseException), item
                    assert values(item) == {"mark": name * 10}
            await check(saver, names[:20])

    run(scenario())
    run(check(saver, names))
    run(saver.aclose())
    gc.collect()


def test_a_put_that_was_cancelled_is_there_as_a_whole_or_not_at_all(server: Server, run: Run) -> None:
    saver = saver_at(server.url or "")

    async def scenario() -> None:
        await fill(saver, 1)
        tasks = [asyncio.create_task(saver.aput(*arguments(2, t=f"c{n}", a=n, b=-n))) for n in range(100)]
        for task in random.sample(tasks, 50):
            await asyncio.sleep(0)
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        for n, end in enumerate(ended):
            found = await saver.aget_tuple(cfg(f"c{n}"))
            if found is not None or not isinstance(end, asyncio.CancelledError):
                assert values(found) == {"a": n, "b": -n}

    run(scenario())
    run(saver.aclose())


def test_connections_that_break_in_mid_pipeline_lose_nothing(proxy: Proxy, run: Run) -> None:
    saver = saver_at(proxy.url)
    names = run(fill(saver, TASKS))
    proxy.delay = 0.002

    async def scenario() -> None:
        for i in range(2, 8):
            tasks = [
                asyncio.create_task(saver.aput(*arguments(i, t=name, parent=i - 1, mark=f"{name}-{i}")))
                for name in names
            ]
            await asyncio.sleep(random.random() * 0.01)
            if i % 2:
                proxy.cut()
            else:
                proxy.lose_replies(2)
            await asyncio.gather(*tasks)
            found = await asyncio.gather(*(saver.aget_tuple(cfg(name)) for name in names))
            assert [values(item) for item in found] == [{"mark": f"{name}-{i}"} for name in names]

    run(scenario())
    run(saver.aclose())


def test_without_retries_each_call_is_done_or_raises_and_later_calls_are_right(proxy: Proxy, run: Run) -> None:
    saver = saver_at(proxy.url, {"retry": None, "retry_on_error": []})
    names = run(fill(saver, TASKS))
    proxy.delay = 0.002

    async def scenario() -> int:
        failed = 0
        for i in range(2, 9):
            tasks = [
                asyncio.create_task(saver.aput(*arguments(i, t=name, parent=i - 1, mark=f"{name}-{i}")))
                for name in names
            ]
            await asyncio.sleep(0.003)
            proxy.cut()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            found = await asyncio.gather(*(saver.aget_tuple(cfg(name, "", IDS[i])) for name in names))
            for name, end, item in zip(names, ends, found, strict=True):
                if isinstance(end, BaseException):
                    assert isinstance(end, redis.ConnectionError), end
                    failed += 1
                if item is not None or not isinstance(end, BaseException):
                    assert values(item) == {"mark": f"{name}-{i}"}
        return failed

    assert run(scenario()) > 0
    run(saver.aclose())


def test_a_connection_on_which_time_ran_out_is_not_used_again(proxy: Proxy, run: Run) -> None:
    saver = saver_at(proxy.url, {"retry": None, "retry_on_error": [], "socket_timeout": 0.3})
    names = run(fill(saver, TASKS))

    async def slow() -> list[Any]:
        return list(await asyncio.gather(*(saver.aget_tuple(cfg(n)) for n in names), return_exceptions=True))

    proxy.delay = 1.0
    assert {type(end) for end in run(slow())} == {redis.exceptions.TimeoutError}
    proxy.delay = 0.0
    before = proxy.counts().connections
    run(check(saver, names))
    assert proxy.counts().connections > before
    run(saver.aclose())


def test_an_unreachable_server_is_an_error_in_every_caller(proxy: Proxy, run: Run) -> None:
    saver = saver_at(proxy.url, {"retry": None, "retry_on_error": []})
    names = run(fill(saver, TASKS))
    proxy.refuse()
    proxy.cut()

    async def ask() -> list[Any]:
        return list(await asyncio.gather(*(saver.aget_tuple(cfg(n)) for n in names), return_exceptions=True))

    found = run(ask())
    assert all(isinstance(end, redis.ConnectionError) for end in found), found
    assert len({id(end) for end in found}) == TASKS
    proxy.refuse(False)
    run(check(saver, names))
    run(saver.aclose())


def test_scripts_that_are_forgotten_in_between_are_sent_a_few_times_and_not_by_everybody(
    server: Server, raw: redis.Redis, run: Run
) -> None:
    saver = saver_at(server.url or "")
    names = run(fill(saver, TASKS))
    with monitor(server) as lines:
        for _ in range(3):
            raw.script_flush()
            run(check(saver, names))
    loads = lines.names().count("SCRIPT") - 3
    assert 3 <= loads <= 3 * TASKS // 3
    run(saver.aclose())


def test_several_loops_at_once_have_connections_of_their_own(proxy: Proxy, run: Run) -> None:
    saver = saver_at(proxy.url)
    names = run(fill(saver, TASKS))
    others = [LoopThread() for _ in range(3)]
    futures = [asyncio.run_coroutine_threadsafe(check(saver, names), other.loop) for other in others]
    for future in futures:
        future.result(60)
    assert proxy.counts().connections <= 4 * CONNECTIONS
    for other in others:
        assert other.leftovers() == []
        other.stop()
    run(check(saver, names))
    run(saver.aclose())


def test_loops_that_end_in_the_middle_of_calls_leave_nothing_behind(server: Server, raw: redis.Redis) -> None:
    before = len(raw.client_list())
    saver = saver_at(server.url or "")

    async def abandons() -> None:
        names = await fill(saver, TASKS)
        for name in names:
            asyncio.get_running_loop().create_task(saver.aget_tuple(cfg(name)))
        await saver.aget_tuple(cfg(names[0]))

    for _ in range(3):
        asyncio.run(abandons())
        gc.collect()
    wait_until(lambda: len(raw.client_list()) <= before)
    asyncio.run(saver.aclose())


def test_closing_in_the_middle_tells_everybody_and_leaves_no_connection(
    proxy: Proxy, raw: redis.Redis, run: Run
) -> None:
    before = len(raw.client_list())
    saver = saver_at(proxy.url, max_batch_commands=8)
    names = run(fill(saver, TASKS))
    proxy.delay = 0.2

    async def scenario() -> list[Any]:
        tasks = [asyncio.create_task(saver.aget_tuple(cfg(name))) for name in names]
        await asyncio.sleep(0.01)
        await saver._wire.aclose()
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    ends = run(scenario())
    assert {type(end) for end in ends} <= {redis.ConnectionError, ClosedError}
    assert sum(isinstance(end, ClosedError) for end in ends) >= TASKS - 8 * CONNECTIONS
    wait_until(lambda: len(raw.client_list()) <= before)
    run(saver.aclose())


@pytest.mark.parametrize(
    "limits",
    [
        {"max_queued_bytes": 1},
        {"max_queued_bytes": 3000, "max_batch_bytes": 1000},
        {"max_batch_commands": 1, "connections": 1},
        {"max_batch_bytes": 1, "connections": 4},
    ],
    ids=str,
)
def test_tight_bounds_change_nothing_but_the_speed(server: Server, run: Run, limits: dict[str, int]) -> None:
    saver = saver_at(server.url or "", **limits)
    names = run(fill(saver, TASKS, size=30))
    run(check(saver, names, size=30))

    async def cancelling() -> None:
        tasks = [asyncio.create_task(saver.aget_tuple(cfg(name))) for name in names]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        sender: Any = next(iter(saver._wire._lines.values())).sender
        line = getattr(sender, "_plain", sender)
        assert (line._queued_bytes, len(line._queue), len(line._outside)) == (0, 0, 0)

    run(cancelling())
    run(check(saver, names, size=30))
    run(saver.aclose())


def test_a_large_value_goes_with_small_ones_around_it(server: Server, run: Run) -> None:
    saver = saver_at(server.url or "")
    big = b"x" * (3 << 20)

    async def scenario() -> None:
        small = await fill(saver, TASKS)
        puts = [saver.aput(*arguments(1, t=f"big-{n}", a=big)) for n in range(3)]
        await asyncio.gather(check(saver, small), *puts, check(saver, small))
        for n in range(3):
            assert values(await saver.aget_tuple(cfg(f"big-{n}"))) == {"a": big}

    run(scenario())
    run(saver.aclose())
