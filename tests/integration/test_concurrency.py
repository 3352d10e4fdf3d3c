"""Many at once: nothing is lost, nothing is refused, nothing waits for a lock, and cancelling leaves whole states."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from tests.proxy import Proxy
from tests.savers import IDS, Facade, MakeSaver, arguments, cfg, put, values, writes
from tests.servers import Server, on_real_servers

ROUNDS = 50


@on_real_servers
def test_sixteen_threads_that_finish_together_lose_no_write(saver: Facade) -> None:
    with ThreadPoolExecutor(16) as pool:
        for number in range(ROUNDS):
            thread = f"t{number}"
            put(saver, 1, t=thread, a=1)
            config = cfg(thread, "", IDS[1])
            list(pool.map(lambda n, c=config: saver.put_writes(c, [("messages", n)], f"task-{n}"), range(16)))
            found = writes(saver.get_tuple(config))
            assert sorted(value for _, _, value in found) == list(range(16))


@on_real_servers
@pytest.mark.parametrize("protocol", [2, 3])
def test_sixteen_threads_putting_into_one_thread_lose_no_checkpoint(saver: Facade) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: put(saver, f"{n:04}", n=n, vers={"n": f"v{n}"}), range(160)))
    found = saver.list(cfg())
    assert [values(item)["n"] for item in found] == list(range(159, -1, -1))


def _gather(s: Facade, *awaitables: Awaitable[Any]) -> list[Any]:
    async def together() -> list[Any]:
        return list(await asyncio.gather(*awaitables))

    return s.loop.run(together())


@on_real_servers
@pytest.mark.parametrize("tasks", [64, 500])
def test_many_asyncio_tasks_on_one_thread_lose_nothing(saver: Facade, tasks: int) -> None:
    """Both classes have async methods; neither runs out of connections."""
    s = saver.raw_saver

    async def step(n: int) -> None:
        name = f"{n:04}"
        await s.aput(*arguments(name, n=n, vers={"n": f"v{n}"}))
        await s.aput_writes(cfg("t", "", name), [("x", n), ("y", -n)], f"task-{n}")
        found = await s.aget_tuple(cfg("t", "", name))
        assert values(found) == {"n": n}

    _gather(saver, *(step(n) for n in range(tasks)))
    found = saver.list(cfg())
    assert [values(item)["n"] for item in found] == list(range(tasks - 1, -1, -1))
    for item in found:
        n = values(item)["n"]
        assert writes(item) == [(f"task-{n}", "x", n), (f"task-{n}", "y", -n)]


@on_real_servers
def test_tasks_do_not_wait_for_each_other(make_saver: MakeSaver, server: Server) -> None:
    """With 50 ms on every answer, 64 operations one by one would take 3.2 s."""
    with Proxy(server.port, delay=0.05) as proxy:
        s = make_saver(redis_url=proxy.url)
        put(s, 1, a=1)
        begin = time.monotonic()
        _gather(s, *(s.raw_saver.aget_tuple(cfg()) for _ in range(64)))
        assert time.monotonic() - begin < 1.6
        s.close()


async def _cancel_somewhere(task: asyncio.Task[Any]) -> bool:
    """Cancel a task at a random moment of its first milliseconds; answers whether it still ended well."""
    await asyncio.sleep(random.random() * 0.004)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return False
    return True


def _companion(n: int, size: int) -> bytes:
    return b"%08d" % n * (size // 8)


async def _put_and_cancel(s: Any, rounds: int, size: int) -> int:
    """Put one checkpoint after another and cancel each somewhere; every read sees a whole one."""
    seen = cancelled = 0
    await s.aput(*arguments("000000", n=0, big=_companion(0, size)))
    for n in range(1, rounds + 1):
        vals: Any = {"n": n, "big": _companion(n, size)}
        vers = dict.fromkeys(vals, n)
        put_n = s.aput(*arguments(f"{n:06}", vers=vers, parent=f"{seen:06}", **vals))
        ended = await _cancel_somewhere(asyncio.create_task(put_n))
        cancelled += not ended
        state = values(await s.aget_tuple(cfg()))
        assert seen <= state["n"] <= n
        assert not ended or state["n"] == n
        assert state["big"] == _companion(state["n"], size)
        seen = state["n"]
    return cancelled


@on_real_servers
@pytest.mark.parametrize("colour", ["async"], indirect=True)
def test_a_cancelled_put_leaves_a_whole_state(saver: Facade, raw: redis.Redis) -> None:
    cancelled = saver.loop.run(_put_and_cancel(saver.raw_saver, rounds=100, size=1 << 20))
    assert cancelled > 0
    saver.prune(["t"])
    (latest,) = saver.list(cfg())
    assert values(latest)["big"] == _companion(values(latest)["n"], 1 << 20)
    assert raw.hlen("ckpt:{t}:blobs") == 2


@on_real_servers
def test_a_cancelled_call_never_takes_the_answer_of_another(saver: Facade) -> None:
    names = [f"thread-{n}" for n in range(8)]
    for name in names:
        put(saver, 1, t=name, marker=name * 100)

    async def scenario(s: Any) -> None:
        for _ in range(40):
            tasks = [asyncio.create_task(s.aget_tuple(cfg(name))) for name in names]
            await asyncio.sleep(random.random() * 0.002)
            for task in random.sample(tasks, 4):
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            for name, answer in zip(names, answers, strict=True):
                if not isinstance(answer, asyncio.CancelledError):
                    assert not isinstance(answer, BaseException), answer
                    assert values(answer) == {"marker": name * 100}
            after = await asyncio.gather(*(s.aget_tuple(cfg(name)) for name in names))
            assert [values(found) for found in after] == [{"marker": name * 100} for name in names]

    saver.loop.run(scenario(saver.raw_saver))


def test_cancelling_is_not_swallowed(saver: Facade) -> None:
    async def scenario(s: Any) -> None:
        for call in (s.aput(*arguments(1, a=1)), s.aget_tuple(cfg()), s.adelete_thread("t")):
            task = asyncio.create_task(call)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    saver.loop.run(scenario(saver.raw_saver))
