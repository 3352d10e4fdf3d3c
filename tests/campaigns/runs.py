"""Runs that go on: turn after turn of many threads in both colours, each begun again where it was after an error."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig

from redis_ckpt import NotAcknowledgedError
from redis_ckpt._retry import is_transient
from tests.campaigns.checks import Checker
from tests.campaigns.graph import LONGEST_TASK_SECONDS, App, graph, next_input, turns
from tests.campaigns.journal import AsyncSaver, Journal, SyncSaver, journaled
from tests.savers import LoopThread

MOST_TURNS = 4  # of one thread; then comes another
SECONDS = 120.0  # that a run may take to come to the end of its turn, however slow the machine


def config_of(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


def turn(app: App, saver: SyncSaver, thread_id: str) -> int:
    """Go on with a thread until its turn is over; answers how many are."""
    config = config_of(thread_id)
    app.invoke(next_input(saver.get_tuple(config)), config, durability="sync")
    return turns(saver.get_tuple(config))


async def aturn(app: App, saver: AsyncSaver, thread_id: str) -> int:
    """The same on asyncio."""
    config = config_of(thread_id)
    await app.ainvoke(next_input(await saver.aget_tuple(config)), config, durability="sync")
    return turns(await saver.aget_tuple(config))


class Runs:
    """`with Runs(url, folder, 4) as runs:` four threads in each colour, until the block is left.

    Args:
        url: Of the server.
        folder: Where the journal is.
        width: Threads at once, in each colour.
        colours: Names of savers; "sync" and "async".
        options: Of the savers.
    """

    def __init__(
        self, url: str, folder: Path, width: int, colours: Sequence[str] = ("sync", "async"), **options: Any
    ) -> None:
        self._path = folder / "journal"
        self._journal = Journal(self._path)
        self._width, self._colours = width, colours
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._numbers: Counter[str] = Counter()
        self._pool = ThreadPoolExecutor(width)
        self._futures: list[Future[None]] = []
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.checker = Checker(url, self._path)
        self._loop = LoopThread()
        self._savers = {colour: journaled(colour == "async", url, self._journal, **options) for colour in colours}

    def __enter__(self) -> Runs:
        for colour, saver in self._savers.items():
            app = graph(saver, self._journal.started, LONGEST_TASK_SECONDS)
            for n in range(self._width):
                if isinstance(saver, SyncSaver):
                    self._futures.append(self._pool.submit(self._go_on, app, saver, f"{colour}-{n}"))
                else:
                    self._futures.append(self._begin(self._ago_on(app, saver, f"{colour}-{n}")))
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        deadline = time.monotonic() + SECONDS
        for future in self._futures:
            try:
                future.result(max(0.0, deadline - time.monotonic()))
            except Exception:
                self.faults.append(f"a run does not end: {traceback.format_exc()}")
        self._pool.shutdown(wait=not self.faults)
        for saver in self._savers.values():
            if isinstance(saver, SyncSaver):
                saver.close()
            else:
                self._loop.run(saver.aclose())
        self._loop.stop()
        self._journal.close()

    @property
    def is_well(self) -> bool:
        return not self.faults

    def check(self) -> None:
        """Read what was acknowledged up to now, while runs go on."""
        self.checker.check_all()

    def _begin(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(work, self._loop.loop)

    def _name(self, slot: str) -> str:
        return f"{slot}-{self._numbers[slot]}"

    def _go_on(self, app: App, saver: SyncSaver, slot: str) -> None:
        while not self._stop.is_set():
            try:
                over = turn(app, saver, self._name(slot))
            except Exception as error:
                if not self._is_expected(error):
                    return
            else:
                self._is_over(slot, over)

    async def _ago_on(self, app: App, saver: AsyncSaver, slot: str) -> None:
        while not self._stop.is_set():
            try:
                over = await aturn(app, saver, self._name(slot))
            except Exception as error:
                if not self._is_expected(error):
                    return
            else:
                self._is_over(slot, over)

    def _is_over(self, slot: str, over: int) -> None:
        with self._lock:
            self.counts["turns"] += 1
            if over >= MOST_TURNS:
                self._numbers[slot] += 1

    def _is_expected(self, error: Exception) -> bool:
        """Whether a run may go on after this; what no retry could mend is counted."""
        with self._lock:
            if isinstance(error, NotAcknowledgedError) or is_transient(error):
                self.counts[f"raised {type(error).__name__}"] += 1
                return True
            self.faults.append("".join(traceback.format_exception(type(error), error, error.__traceback__))[-3000:])
            return False


def during(runs: Runs, times: int, act: Callable[[int], object]) -> None:
    """Act so many times while runs go on; between two times each colour has finished a turn, and all is checked."""
    for n in range(times):
        before = runs.counts["turns"]
        act(n)
        deadline = time.monotonic() + SECONDS
        while runs.counts["turns"] < before + 2 and runs.is_well:
            if time.monotonic() > deadline:
                runs.faults.append(f"no turn has ended within {SECONDS:.0f} s after number {n}")
            time.sleep(0.01)
        runs.check()
        if not runs.is_well or runs.checker.faults:
            return
