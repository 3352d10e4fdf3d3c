"""Runs that go on: turn after turn of many threads in both colours, each begun again where it was after an error."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from redis_ckpt import NotAcknowledgedError
from redis_ckpt._retry import is_transient
from tests.campaigns.checks import Checker
from tests.campaigns.graph import LONGEST_TASK_SECONDS, App, fault, graph, next_input, turns
from tests.campaigns.journal import AsyncSaver, Journal, SyncSaver, journaled
from tests.campaigns.results import Result
from tests.savers import LoopThread
from tests.soak.content import BrokenError, place

COLOURS = ("sync", "async")
PAUSE_SECONDS = 0.02  # after an error
MOST_TURNS = 4  # of one thread; then comes another
SECONDS = 120.0  # that a run may take to come to the end of its turn, however slow the machine


def config_of(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


def turn(app: App, saver: SyncSaver, thread_id: str) -> int:
    """Go on with a thread until its turn is over; answers how many are."""
    config = config_of(thread_id)
    app.invoke(next_input(_whole(thread_id, saver.get_tuple(config))), config, durability="sync")
    return turns(_whole(thread_id, saver.get_tuple(config)))


async def aturn(app: App, saver: AsyncSaver, thread_id: str) -> int:
    """The same on asyncio."""
    config = config_of(thread_id)
    await app.ainvoke(next_input(_whole(thread_id, await saver.aget_tuple(config))), config, durability="sync")
    return turns(_whole(thread_id, await saver.aget_tuple(config)))


def _whole(thread_id: str, found: CheckpointTuple | None) -> CheckpointTuple | None:
    """What was read, if it is whole and of this thread."""
    if found is not None and (found.config["configurable"]["thread_id"] != thread_id or fault(found)):
        raise BrokenError(f"{place(found)} was read for thread {thread_id!r}: {fault(found)}")
    return found


class Runs:
    """`with Runs(url, folder, 4) as runs:` four threads in each colour, until the block is left.

    Args:
        url: Of the server.
        folder: Where the journal is.
        width: Threads at once, in each colour.
        check_url: Where checks read, if not there.
        tolerated: Errors, beside those that time mends, after which a run goes on.
        gives_up: Whether it goes on with another thread after an error.
        options: Of the savers.
    """

    def __init__(
        self,
        url: str,
        folder: Path,
        width: int,
        *,
        check_url: str | None = None,
        tolerated: tuple[type[Exception], ...] = (),
        gives_up: bool = False,
        **options: Any,
    ) -> None:
        path = folder / "journal"
        self._journal = Journal(path, is_synced=False)
        self._tolerated: tuple[type[Exception], ...] = (NotAcknowledgedError, *tolerated)
        self._gives_up = gives_up
        self._width = width
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._numbers: Counter[str] = Counter()
        self._pool = ThreadPoolExecutor(width)
        self._futures: list[Future[None]] = []
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.checker = Checker(check_url or url, path)
        self._loop = LoopThread()
        self._savers = {colour: journaled(colour == "async", url, self._journal, **options) for colour in COLOURS}

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

    def wait_until(self, condition: Callable[[], bool], failure: str) -> None:
        """Ask until it holds, or something else has gone wrong; that it never holds is a fault."""
        deadline = time.monotonic() + SECONDS
        while self.is_well and not condition():
            if time.monotonic() > deadline:
                self.faults.append(f"{failure}, for {SECONDS:.0f} s")
            time.sleep(0.01)

    def wait_for_turns(self, count: int) -> None:
        """Until so many more have ended."""
        before = self.counts["turns"]
        self.wait_until(lambda: self.counts["turns"] >= before + count, "no turn has ended")

    def check(self) -> None:
        """Read what was acknowledged up to now, while runs go on."""
        self.checker.check_all()

    def finish(self, result: Result) -> None:
        """When no run is left: look at everything, and tell what was done."""
        self.checker.check_everything()
        told = self.checker.acknowledged.counts
        result.add(self.counts, self.faults)
        result.add(self.checker.counts, self.checker.faults)
        result.add({f"acknowledged {what}": told[what] for what in ("put", "writes")}, [])
        result.add({"threads": len(self.checker.acknowledged.checkpoints), "run again": told["run again"]}, [])

    def _begin(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(work, self._loop.loop)

    def _name(self, slot: str) -> str:
        return f"{slot}-{self._numbers[slot]}"

    def _go_on(self, app: App, saver: SyncSaver, slot: str) -> None:
        while not self._stop.is_set():
            try:
                over = turn(app, saver, self._name(slot))
            except Exception as error:
                if not self._is_expected(slot, error):
                    return
                time.sleep(PAUSE_SECONDS)
            else:
                self._is_over(slot, over)

    async def _ago_on(self, app: App, saver: AsyncSaver, slot: str) -> None:
        while not self._stop.is_set():
            try:
                over = await aturn(app, saver, self._name(slot))
            except Exception as error:
                if not self._is_expected(slot, error):
                    return
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                self._is_over(slot, over)

    def _is_over(self, slot: str, over: int) -> None:
        with self._lock:
            self.counts["turns"] += 1
            if over >= MOST_TURNS:
                self._numbers[slot] += 1

    def _is_expected(self, slot: str, error: Exception) -> bool:
        """Whether a run may go on after this; what no retry could mend is counted."""
        with self._lock:
            if isinstance(error, self._tolerated) or is_transient(error):
                self._numbers[slot] += self._gives_up
                self.counts[f"raised {type(error).__name__}"] += 1
                return True
            self.faults.append("".join(traceback.format_exception(type(error), error, error.__traceback__))[-3000:])
            return False


def during(runs: Runs, times: int, act: Callable[[int], object]) -> None:
    """Act so many times while runs go on; between two times some turns have ended, and all is checked."""
    for n in range(times):
        act(n)
        runs.wait_for_turns(2)
        runs.check()
        if runs.faults or runs.checker.faults:
            return


def while_they_go_on(runs: Runs, seconds: float) -> None:
    """Check again and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not runs.faults and not runs.checker.faults:
        runs.wait_for_turns(2)
        runs.check()
