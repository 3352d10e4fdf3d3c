"""The savers of the operation benchmarks stay open over the whole session; the tests take turns on them."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from bench.drivers import Driver
from bench.savers import PRESENT, Servers, another_worker
from bench.workloads import WORKLOADS, Thread


class Bench:
    """The open savers, and the threads that they read."""

    def __init__(self, servers: Servers, stack: ExitStack) -> None:
        self.servers, self._stack = servers, stack
        self._drivers: dict[str, Driver] = {}
        self._others: dict[str, Driver] = {}
        self._threads: dict[tuple[str, str], Thread] = {}

    def driver(self, row: str) -> Driver:
        """The saver of a row."""
        if row not in self._drivers:
            self._drivers[row] = self._stack.enter_context(PRESENT[row].open(self.servers))
        return self._drivers[row]

    def other(self, row: str) -> Driver:
        """The saver of a row as another process has it."""
        if row not in self._others:
            made = another_worker(PRESENT[row], self.driver(row), self.servers)
            self._others[row] = self._stack.enter_context(made)
        return self._others[row]

    def thread(self, row: str, workload: str, checkpoints: int) -> Thread:
        """A thread with a history: of the row's own, or, where that would take long, one for all of its store."""
        owner = PRESENT[row].store if checkpoints > 100 else row
        if (owner, workload) not in self._threads:
            made = Thread(WORKLOADS[workload], self.driver(row).saver, WORKLOADS[workload].size - checkpoints)
            grow(self.driver(row), made, checkpoints, with_writes=checkpoints <= 100)
            self._threads[owner, workload] = made
        return self._threads[owner, workload]


def grow(driver: Driver, thread: Thread, steps: int, with_writes: bool = True) -> None:
    """Let a thread run for some steps; the last one leaves its writes pending."""
    for _ in range(steps):
        driver("put", *thread.next_put())
        if with_writes:
            for writes in thread.next_writes():
                driver("put_writes", *writes)


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    gc.collect()
    gc.freeze()  # the modules; the collection before each benchmark need not look at them again
    with ExitStack() as stack:
        # pytest-benchmark fails at the end of an interrupted session, and then no fixture is torn down
        atexit.register(stack.close)
        yield Bench(stack.enter_context(Servers()), stack)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Savers take turns inside each operation, and all of it is done several times: a drift of the machine hits all."""
    items.sort(key=lambda item: item.callspec.params["turn"] if hasattr(item, "callspec") else -1)
