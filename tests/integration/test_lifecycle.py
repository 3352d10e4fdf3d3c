"""From the constructor to close: loops, both colours of each class, clones, and what a closed saver says."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import redis
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from redis_ckpt import AsyncRedisSaver, CheckpointerError, ClosedError, RedisSaver
from tests.proxy import Proxy
from tests.savers import IDS, Facade, LoopThread, MakeSaver, arguments, cfg, put, values, writes
from tests.servers import Server, on_real_servers

HEAD = cfg("t", "", IDS[1])


def eventually(condition: Callable[[], bool]) -> bool:
    """Wait until the condition holds; False if it does not within ten seconds."""
    deadline = time.monotonic() + 10
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


async def roundtrip(s: AsyncRedisSaver, n: int) -> None:
    await s.aput(*arguments(n, a=n))
    await s.aput_writes(cfg("t", "", IDS[n]), [("x", n)], "k", "~path")
    found = await s.aget_tuple(cfg())
    assert values(found) == {"a": n}
    assert writes(found) == [("k", "x", n)]
    assert len([item async for item in s.alist(cfg())]) == n


@on_real_servers
def test_a_saver_made_without_a_loop_serves_one_loop_after_another(server: Server) -> None:
    s = AsyncRedisSaver.from_url(server.url or "")
    for n in (1, 2, 3):
        asyncio.run(roundtrip(s, n))
    asyncio.run(s.aclose())
    gc.collect()


@on_real_servers
def test_loops_that_have_ended_leave_no_connections(server: Server, raw: redis.Redis) -> None:
    """A worker that calls `asyncio.run` for each job must not collect connections."""
    raw.ping()
    before = len(raw.client_list())
    s = AsyncRedisSaver.from_url(server.url or "")
    for n in range(1, 10):
        asyncio.run(roundtrip(s, n))
    gc.collect()
    assert eventually(lambda: len(raw.client_list()) <= before + 1)
    asyncio.run(s.aclose())
    assert eventually(lambda: len(raw.client_list()) <= before)


@on_real_servers
def test_a_client_that_was_given_serves_two_loops_or_says_why_not(server: Server) -> None:
    client = server.araw()
    s = AsyncRedisSaver(redis_client=client)

    async def first() -> None:
        await roundtrip(s, 1)
        await client.aclose()

    asyncio.run(first())
    try:
        asyncio.run(roundtrip(s, 2))
    except RuntimeError as error:
        assert "loop" in str(error)  # noqa: PT017
    asyncio.run(s.aclose())


@on_real_servers
def test_two_loops_at_once_share_a_saver(server: Server) -> None:
    s = AsyncRedisSaver.from_url(server.url or "")
    others = [LoopThread(), LoopThread()]

    async def work(name: str) -> None:
        for i in range(20):
            await s.aput(*arguments(f"{i:04}", t=name, a=name))
            assert values(await s.aget_tuple(cfg(name))) == {"a": name}

    futures = [asyncio.run_coroutine_threadsafe(work(f"t{n}"), loop.loop) for n, loop in enumerate(others)]
    for future in futures:
        future.result(30)
    others[0].run(s.aclose())
    for loop in others:
        loop.stop()


def _blocking_calls(s: Any) -> dict[str, Callable[[], Any]]:
    """Every blocking method, as LangGraph may call it."""
    return {
        "get_tuple": lambda: s.get_tuple(cfg()),
        "get": lambda: s.get(cfg()),
        "list": lambda: list(s.list(cfg())),
        "put": lambda: s.put(*arguments(2, parent=1, a=2)),
        "put_writes": lambda: s.put_writes(HEAD, [("x", 2)], "k2", "~path"),
        "get_delta_channel_history": lambda: s.get_delta_channel_history(config=cfg(), channels=["x"]),
        "threads": lambda: list(s.threads()),
        "copy_thread": lambda: s.copy_thread("t", "t2"),
        "prune": lambda: s.prune(["t2"]),
        "delete_for_runs": lambda: s.delete_for_runs(["r"]),
        "delete_thread": lambda: s.delete_thread("t2"),
        "setup": lambda: s.setup(),
    }


@pytest.mark.parametrize("colour", ["async"], indirect=True)
def test_a_blocking_call_on_the_loop_is_refused_at_once_and_says_what_to_do(saver: Facade) -> None:
    async def bad() -> None:
        await saver.raw_saver.aput(*arguments(1, a=1))
        for name, call in _blocking_calls(saver.raw_saver).items():
            begin = time.monotonic()
            with pytest.raises(RuntimeError, match="await"):
                call()
            assert time.monotonic() - begin < 1, name

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no coroutine may be left unawaited
        saver.loop.run(bad())
        gc.collect()
    assert values(saver.get_tuple(cfg())) == {"a": 1}


@on_real_servers
def test_the_first_call_on_a_loop_is_refused_as_well(server: Server) -> None:
    s = AsyncRedisSaver.from_url(server.url or "")

    async def bad() -> None:
        with pytest.raises(RuntimeError, match="await"):
            s.get_tuple(cfg())
        await s.aclose()

    asyncio.run(bad())


@pytest.mark.parametrize("colour", ["async"], indirect=True)
def test_blocking_calls_of_an_asyncio_saver_work_in_worker_threads(saver: Facade) -> None:
    s = saver.raw_saver

    def worker() -> None:
        assert threading.current_thread() is not threading.main_thread()
        s.put_writes(HEAD, [("x", "second")], "aaa", "~b")
        s.put_writes(HEAD, [("x", "first")], "zzz", "~a")
        for name, call in _blocking_calls(s).items():
            if name != "put_writes":
                call()

    async def run() -> None:
        await s.aput(*arguments(1, a=1))
        await asyncio.to_thread(worker)
        found = await s.aget_tuple(HEAD)
        assert [value for _, _, value in writes(found)] == ["first", "second"]

    saver.loop.run(run())


@on_real_servers
def test_blocking_calls_of_an_asyncio_saver_work_where_no_loop_runs(server: Server) -> None:
    s = AsyncRedisSaver.from_url(server.url or "")
    put(s, 1, a=1)
    for call in _blocking_calls(s).values():
        call()
    assert values(s.get_tuple(cfg())) == {"a": 2}
    asyncio.run(roundtrip(s, 2))
    s.close()
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("redis-ckpt")]


@on_real_servers
def test_a_blocking_call_of_an_asyncio_saver_waits_for_a_slow_answer(server: Server) -> None:
    with Proxy(server.port) as proxy:
        s = AsyncRedisSaver.from_url(proxy.url)
        put(s, 1, a=1)
        s.setup()
        proxy.delay = 1.3
        assert values(s.get_tuple(cfg())) == {"a": 1}
        s.close()


@on_real_servers
def test_blocking_calls_do_not_depend_on_loops_that_end(server: Server) -> None:
    """Loops come and go while worker threads call: each call of theirs is done."""
    s = AsyncRedisSaver.from_url(server.url or "")
    put(s, 1, a=1)
    stop = threading.Event()

    def loops() -> None:
        while not stop.is_set():
            asyncio.run(s.aget_tuple(cfg()))

    def work(t: str) -> None:
        for n in range(1, 41):
            put(s, f"{n:04}", t=t, parent=f"{n - 1:04}" if n > 1 else None, a=n)
            done.append(values(s.get_tuple(cfg(t))) == {"a": n})

    done: list[bool] = []
    others = [threading.Thread(target=loops) for _ in range(2)]
    workers = [threading.Thread(target=work, args=(f"worker-{n}",)) for n in range(3)]
    for thread in (*others, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    stop.set()
    for thread in others:
        thread.join()
    s.close()
    assert done == [True] * 120


@pytest.mark.parametrize("colour", ["sync"], indirect=True)
def test_async_methods_of_a_blocking_saver_leave_the_loop_free(make_saver: MakeSaver) -> None:
    s = make_saver()

    async def run() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        for i in range(5):
            await s.raw_saver.aput(*arguments(i, a=i))
        before = ticks
        assert values(await s.raw_saver.aget_tuple(cfg())) == {"a": 4}
        assert ticks > before
        ticking.cancel()

    s.loop.run(run())


def _assert_closed(s: Any, name: str) -> None:
    calls = _blocking_calls(s)
    for call in calls.values():
        with pytest.raises(ClosedError, match=f"{name} is closed"):
            call()
    assert issubclass(ClosedError, CheckpointerError)


async def _assert_aclosed(s: Any, name: str) -> None:
    calls: list[Any] = [
        s.aget_tuple(cfg()),
        s.aget(cfg()),
        s.aput(*arguments(1, a=1)),
        s.aput_writes(HEAD, [("x", 1)], "k"),
        s.adelete_thread("t"),
        s.adelete_for_runs(["r"]),
        s.acopy_thread("t", "t2"),
        s.aprune(["t"]),
        s.aget_delta_channel_history(config=cfg(), channels=["x"]),
        s.asetup(),
        anext(s.alist(cfg())),
        anext(s.athreads()),
    ]
    for call in calls:
        with pytest.raises(ClosedError, match=f"{name} is closed"):
            await call


def test_a_closed_saver_says_so_in_every_method(saver: Facade, raw: redis.Redis) -> None:
    put(saver, 1, a=1)
    before = sorted(raw.scan_iter())
    saver.close()
    saver.close()
    name = type(saver.raw_saver).__name__
    saver.loop.run(_assert_aclosed(saver.raw_saver, name))
    _assert_closed(saver.raw_saver, name)
    assert sorted(raw.scan_iter()) == before
    if saver.is_async:  # the blocking calls above have made a loop of their own
        saver.raw_saver.close()


@on_real_servers
def test_leaving_the_with_block_closes(server: Server) -> None:
    url = server.url or ""
    with RedisSaver.from_conn_string(url, prefix="p") as s:
        put(s, 1, a=1)
    _assert_closed(s, "RedisSaver")
    with RedisSaver(url, prefix="p") as s, RedisSaver.from_url(url, prefix="p") as other:
        assert values(s.get_tuple(cfg())) == values(other.get_tuple(cfg())) == {"a": 1}
    _assert_closed(s, "RedisSaver")

    async def asynchronous() -> None:
        async with AsyncRedisSaver.from_conn_string(url, prefix="p") as s:
            assert values(await s.aget_tuple(cfg())) == {"a": 1}
        await _assert_aclosed(s, "AsyncRedisSaver")
        async with AsyncRedisSaver(url, prefix="p") as s:
            assert values(await s.aget_tuple(cfg())) == {"a": 1}
        await _assert_aclosed(s, "AsyncRedisSaver")

    asyncio.run(asynchronous())


@on_real_servers
def test_closing_leaves_no_connection_on_the_server(make_saver: MakeSaver, raw: redis.Redis) -> None:
    before = len(raw.client_list())
    s = make_saver()
    for i in range(3):
        put(s, i, a=i)
    assert len(raw.client_list()) > before
    s.close()
    assert eventually(lambda: len(raw.client_list()) == before)


@on_real_servers
def test_a_clone_with_an_allowlist_shares_the_connections(make_saver: MakeSaver, raw: redis.Redis) -> None:
    s = make_saver(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    put(s, 1, a=1)
    clone = s.with_allowlist([("tests.somewhere", "Thing")])
    assert clone.raw_saver is not s.raw_saver
    connections = len(raw.client_list())
    put(clone, 2, parent=1, a=2)
    assert values(s.get_tuple(cfg())) == values(clone.get_tuple(cfg())) == {"a": 2}
    assert len(raw.client_list()) == connections
    s.close()
    with pytest.raises(ClosedError):
        clone.get_tuple(cfg())


def test_a_normal_run_logs_no_warning(saver: Facade, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        saver.setup()
        for i in range(3):
            put(saver, i, parent=i - 1 if i else None, meta={"run_id": "r"}, a=i)
            saver.put_writes(cfg("t", "", IDS[i]), [("x", i)], "k")
        assert len(saver.list(cfg(), filter={"run_id": "r"})) == 3
        saver.copy_thread("t", "t2")
        saver.prune(["t"])
        saver.delete_for_runs(["r"])
        saver.delete_thread("t")
        saver.close()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
