"""Latency of each operation on each workload and saver, one call after another.

    python -m pytest bench/test_operations.py -p no:randomly --benchmark-disable-gc --benchmark-json=FILE

The savers take turns; see `conftest.py`. `make bench` merges the turns, and takes medians.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.drivers import CLOCK, Driver
from bench.results import QUICK
from bench.savers import PRESENT
from bench.workloads import DEEP_CHECKPOINTS, WORKLOADS, Thread, Workload

if TYPE_CHECKING:
    from bench.conftest import Bench

TURNS = 1 if QUICK else 5
READ_CHECKPOINTS = 12
LIMIT = 10
WARM_UP = 3

Call = Callable[[], Any]


def depth(workload: Workload) -> int:
    """How many checkpoints the thread has that is read."""
    if workload.name != "deep":
        return READ_CHECKPOINTS
    return DEEP_CHECKPOINTS // 10 if QUICK else DEEP_CHECKPOINTS


def growing(bench: Bench, row: str, workload: Workload) -> tuple[Driver, Thread]:
    """A thread whose measured steps lie around the workload's size."""
    driver = bench.driver(row)
    if workload.name == "deep":
        thread = bench.thread(row, "deep", depth(workload))
        driver("get_tuple", thread.config)  # as at the start of a run
        return driver, thread
    thread = Thread(workload, driver.saver, max(0, workload.size - workload.rounds // 2 - WARM_UP))
    driver("put", *thread.next_put())
    return driver, thread


def put(bench: Bench, row: str, workload: Workload) -> Call:
    driver, thread = growing(bench, row, workload)

    def call() -> None:
        before = CLOCK.elapsed
        for writes in thread.next_writes():
            driver("put_writes", *writes)
        CLOCK.elapsed = before  # they belong to the step, but are measured elsewhere
        driver("put", *thread.next_put())

    return call


def put_writes(bench: Bench, row: str, workload: Workload) -> Call:
    """The writes of one task, after the checkpoint that they belong to."""
    driver, thread = growing(bench, row, workload)

    def call() -> None:
        before = CLOCK.elapsed
        driver("put", *thread.next_put())
        first, *others = thread.next_writes()
        for writes in others:
            driver("put_writes", *writes)
        CLOCK.elapsed = before
        driver("put_writes", *first)

    return call


def get_tuple(bench: Bench, row: str, workload: Workload) -> Call:
    """By the process that wrote the thread."""
    driver, config = bench.driver(row), bench.thread(row, workload.name, depth(workload)).config
    return lambda: driver("get_tuple", config)


def get_tuple_elsewhere(bench: Bench, row: str, workload: Workload) -> Call:
    """By a process that sees the thread for the first time."""
    thread, driver = bench.thread(row, workload.name, depth(workload)), bench.other(row)
    return lambda: driver("get_tuple", thread.config)


def list_10(bench: Bench, row: str, workload: Workload) -> Call:
    driver, config = bench.driver(row), bench.thread(row, workload.name, depth(workload)).config
    return lambda: driver("list", config, limit=LIMIT)


OPERATIONS = {
    "put": put,
    "put_writes": put_writes,
    "get_tuple": get_tuple,
    "get_tuple elsewhere": get_tuple_elsewhere,
    "list(10)": list_10,
}


@pytest.mark.benchmark(timer=CLOCK)
@pytest.mark.parametrize("row", list(PRESENT))
@pytest.mark.parametrize("operation", list(OPERATIONS))
@pytest.mark.parametrize("workload", list(WORKLOADS))
@pytest.mark.parametrize("turn", range(TURNS))
def test_operation(
    benchmark: BenchmarkFixture, bench: Bench, turn: int, workload: str, operation: str, row: str
) -> None:
    call = OPERATIONS[operation](bench, row, WORKLOADS[workload])
    gc.collect()
    benchmark.extra_info.update(workload=workload, operation=operation, row=row)
    pedantic: Any = benchmark.pedantic
    pedantic(call, rounds=WORKLOADS[workload].rounds, warmup_rounds=WARM_UP)
