"""Cancellation at every await: an operation is cancelled at each of its suspensions in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import pytest

from redis_ckpt import Ack, AsyncRedisSaver
from tests.integration.test_ack import Pair
from tests.savers import arguments, cfg
from tests.servers import Server, on_real_servers

MOST_SUSPENSIONS = 200
BIG = "companion " * 20_000


class CancelledAt:
    """An awaitable whose task is cancelled when it waits for the n-th time; `count` is how often it has waited."""

    def __init__(self, work: Coroutine[Any, Any, Any], n: int) -> None:
        self._work, self._n = work, n
        self.count = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        failed: BaseException | None = None
        while True:
            try:
                waits_for = self._work.send(None) if failed is None else self._work.throw(failed)
            except StopIteration as end:
                return end.value
            self.count += 1
            if self.count == self._n:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            failed = None
            try:
                yield waits_for
            except BaseException as error:
                failed = error


async def at_each_suspension(
    work: Callable[[int], Coroutine[Any, Any, Any]], check: Callable[[int], Awaitable[None]]
) -> int:
    """Cancel `work` at its first suspension, then at its second ... until it comes to its end; answers how many."""
    for n in range(1, MOST_SUSPENSIONS):
        shell = CancelledAt(work(n), n)
        task = asyncio.ensure_future(_run(shell))
        await asyncio.wait([task])
        if not task.cancelled():
            assert task.exception() is None, task.exception()
        await check(n)
        if shell.count < n:
            return n
    raise AssertionError("it never came to its end")


async def _run(shell: CancelledAt) -> Any:
    return await shell


async def _whole(saver: AsyncRedisSaver, thread: str) -> None:
    """What can be read of a thread agrees with itself, and another thread's replies are its own."""
    for found in [found async for found in saver.alist(cfg(thread))]:
        values = found.checkpoint["channel_values"]
        assert values == {"n": values["n"], "big": f"{values['n']} {BIG}"}
    other = await saver.aget_tuple(cfg("other"))
    assert other is not None
    assert other.checkpoint["channel_values"] == {"n": "other"}


async def _put(saver: AsyncRedisSaver, n: int, thread: str = "t", parent: str | None = None) -> Any:
    versions = {"n": f"{n:032}.0.{n}12345678", "big": f"{n:032}.0.{n}12345678"}
    return await saver.aput(*arguments(f"id-{n:04}", t=thread, parent=parent, n=n, big=f"{n} {BIG}", vers=versions))


async def _first_put(url: str, made: list[AsyncRedisSaver], n: int) -> None:
    """On a loop's first call the connections are made as well."""
    made.append(AsyncRedisSaver(url))
    await _put(made[-1], n + 3)


async def _list(saver: AsyncRedisSaver) -> None:
    assert [found async for found in saver.alist(cfg("t"))]


OPERATIONS: dict[str, Callable[[AsyncRedisSaver, int], Coroutine[Any, Any, Any]]] = {
    "put": lambda saver, n: _put(saver, n + 3),
    "put_writes": lambda saver, n: saver.aput_writes(cfg("t", "", "id-0002"), [("x", n), ("y", BIG)], f"task-{n}"),
    "get_tuple": lambda saver, n: saver.aget_tuple(cfg("t")),
    "list": lambda saver, n: _list(saver),
    "prune": lambda saver, n: saver.aprune(["t"]),
    "copy": lambda saver, n: saver.acopy_thread("t", f"copy-{n}"),
    "sweep": lambda saver, n: saver.asweep(["t"], keep_last=2),
    "stats": lambda saver, n: saver.astats("t"),
    "verify": lambda saver, n: saver.averify("t"),
}


@on_real_servers
@pytest.mark.parametrize("operation", [*OPERATIONS, "first put"])
async def test_wherever_it_is_cancelled_nothing_is_torn(server: Server, operation: str) -> None:
    assert server.url is not None
    url, made = server.url, list[AsyncRedisSaver]()
    async with AsyncRedisSaver.from_conn_string(url) as saver:
        await saver.aput(*arguments(1, t="other", n="other"))
        for n in range(3):
            await _put(saver, n)

        def work(n: int) -> Coroutine[Any, Any, Any]:
            return _first_put(url, made, n) if operation == "first put" else OPERATIONS[operation](saver, n)

        async def check(n: int) -> None:
            for fresh in made:
                await fresh.aclose()
            await _whole(saver, "t")
            await _whole(saver, f"copy-{n}")
            newest = await saver.aget_tuple(cfg("t"))
            assert newest is not None
            for task, channel, value in newest.pending_writes or ():
                assert (channel, value) in (("x", int(task.removeprefix("task-"))), ("y", BIG))

        assert await at_each_suspension(work, check) >= 2
        report = await saver.averify("t")
        assert report is not None
        assert report.ok
        own = asyncio.current_task()
        assert [task for task in asyncio.all_tasks() if task is not own] == []


async def test_a_wait_for_acknowledgements_is_cancelled() -> None:
    pair = Pair("valkey")
    try:
        async with AsyncRedisSaver.from_conn_string(pair.primary.url, ack=Ack(timeout=5)) as saver:
            await saver.aput(*arguments(1, t="other", n="other"))
            with pair.silent_replica():
                waiting = asyncio.create_task(_put(saver, 1))
                while await saver.aget_tuple(cfg("t")) is None:
                    pass
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            for n in range(2, 6):
                await _put(saver, n)
                await _whole(saver, "t")
            assert len([found async for found in saver.alist(cfg("t"))]) == 5
    finally:
        pair.stop()
