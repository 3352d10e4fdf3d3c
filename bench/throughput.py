"""Operations per second of many runs at once on one event loop.

    python -m bench.throughput

A task plays runs one after another: `aget_tuple`, then three steps of `aput` and `aput_writes`, on a thread of the
workload "short" that it begins anew after every second run. All arguments are made before the clock starts. The number
of runs is fixed beforehand, so that a measurement takes about a second; the savers take turns, and the median counts.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from bench.drivers import Awaiting
from bench.results import QUICK, rounded, save
from bench.savers import AMEMORY, POOL_SIZE, PRESENT, RELAXED, AsyncPostgres, Row, Servers
from bench.workloads import WORKLOADS, Put, Saver, Thread, Writes

LEVELS = (1, 16, 64) if QUICK else (1, 4, 16, 64, 256)
STEPS = 3
RUNS_A_THREAD = 2
OPERATIONS_A_RUN = 1 + 2 * STEPS
SECONDS = 0.1 if QUICK else 0.8
TURNS = 1 if QUICK else 3

Run = tuple[Any, list[tuple[Put, list[Writes]]]]

ROWS = (
    AMEMORY,
    Row("apostgres", "AsyncPostgresSaver", "postgres", lambda s: AsyncPostgres(s.postgres, least=POOL_SIZE), True),
    Row(
        "apostgres-off",
        "AsyncPostgresSaver, synchronous_commit=off",
        "postgres",
        lambda s: AsyncPostgres(s.postgres, RELAXED, POOL_SIZE),
        True,
    ),
    Row(
        "apostgres-many",
        "AsyncPostgresSaver, one for each task on one pool",
        "postgres",
        lambda s: AsyncPostgres(s.postgres, least=POOL_SIZE),
        True,
    ),
    *(PRESENT[name] for name in ("aredis", "aredis62") if name in PRESENT),
)


def prepared(saver: Saver, runs: int) -> list[Run]:
    """The arguments of so many runs of one task."""
    made: list[Run] = []
    thread = Thread(WORKLOADS["short"], saver, 10)
    for n in range(runs):
        if n % RUNS_A_THREAD == 0:
            thread = Thread(WORKLOADS["short"], saver, 10)
        made.append((thread.config, [(thread.next_put(), thread.next_writes()) for _ in range(STEPS)]))
    return made


async def play(saver: Saver, runs: list[Run]) -> None:
    """What one task does."""
    for config, steps in runs:
        await saver.aget_tuple(config)
        for put, tasks in steps:
            await saver.aput(*put)
            for writes in tasks:
                await saver.aput_writes(*writes)


async def together(savers: list[Saver], work: list[list[Run]]) -> float:
    """Seconds until all tasks are done."""
    before = perf_counter()
    await asyncio.gather(*(play(saver, runs) for saver, runs in zip(savers, work, strict=True)))
    return perf_counter() - before


class Contestant:
    """An open saver, and how fast it was at each level so far."""

    def __init__(self, row: Row, driver: Awaiting) -> None:
        self.row, self._driver = row, driver
        self._rates: dict[int, list[float]] = {}
        self._expected = self._rate(min(POOL_SIZE, LEVELS[-1]), RUNS_A_THREAD)  # warms up, too

    def measure(self, tasks: int) -> None:
        """One measurement, of as much work as the rate of the last one fits into the time."""
        runs = max(RUNS_A_THREAD, round(self._expected * SECONDS / tasks / OPERATIONS_A_RUN))
        self._expected = self._rate(tasks, runs)
        self._rates.setdefault(tasks, []).append(self._expected)

    def _rate(self, tasks: int, runs: int) -> float:
        savers = self._savers(tasks)
        work = [prepared(saver, runs) for saver in savers]
        gc.collect()
        seconds = self._driver.loop.run_until_complete(together(savers, work))
        return tasks * runs * OPERATIONS_A_RUN / seconds

    def _savers(self, tasks: int) -> list[Saver]:
        saver = self._driver.saver
        if self.row.name == "apostgres-many":
            assert isinstance(saver, AsyncPostgresSaver)
            return self._driver.loop.run_until_complete(self._one_each(saver, tasks))
        if self.row.name == "memory":
            saver = type(saver)()
        return [saver] * tasks

    async def _one_each(self, saver: AsyncPostgresSaver, tasks: int) -> list[Saver]:
        return [AsyncPostgresSaver(saver.conn) for _ in range(tasks)]

    def rates(self) -> dict[str, float]:
        """The median at each level."""
        return {str(tasks): rounded(statistics.median(rates)) for tasks, rates in self._rates.items()}


@contextmanager
def contestants() -> Iterator[list[Contestant]]:
    """All savers, open."""
    with Servers() as servers, ExitStack() as stack:
        drivers = [(row, stack.enter_context(row.open(servers))) for row in ROWS]
        yield [Contestant(row, driver) for row, driver in drivers if isinstance(driver, Awaiting)]


def main() -> None:
    """Measure all levels."""
    gc.freeze()
    with contestants() as all_of_them:
        for level in LEVELS:
            for _ in range(TURNS):
                for one in all_of_them:
                    one.measure(level)
        figures = {one.row.name: {"title": one.row.title, "rates": one.rates()} for one in all_of_them}
    save("throughput", figures)


if __name__ == "__main__":
    main()
