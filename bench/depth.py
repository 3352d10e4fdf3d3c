"""`list(limit=10)` on a thread of 10,000 checkpoints against one of 20, in turn on the same server.

python -m bench.depth
"""

from __future__ import annotations

import gc
import statistics

from bench.conftest import grow
from bench.drivers import Driver
from bench.results import QUICK, rounded, save
from bench.savers import PRESENT, Servers
from bench.workloads import DEEP_CHECKPOINTS, WORKLOADS, Thread

LIMIT = 10
SHORT = 20
LONG = DEEP_CHECKPOINTS // 10 if QUICK else DEEP_CHECKPOINTS
ROUNDS = 20 if QUICK else 100
ROWS = ("memory", "sqlite", "postgres", "redis", "aredis", "redis62")


def measure(driver: Driver) -> dict[str, float]:
    """Microseconds on both threads, and their ratio."""
    threads = []
    for length in (SHORT, LONG):
        thread = Thread(WORKLOADS["deep"], driver.saver, 0)
        grow(driver, thread, length, with_writes=False)
        threads.append(thread)
    gc.collect()
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for thread, taken in zip(threads, times, strict=True):
            taken.append(driver.seconds("list", thread.config, limit=LIMIT) * 1e6)
    short, long = (rounded(statistics.median(taken)) for taken in times)
    return {"short": short, "long": long, "ratio": rounded(long / short)}


def main() -> None:
    """Measure every store."""
    found = {}
    for row in ROWS:
        if row in PRESENT:
            with Servers() as servers, PRESENT[row].open(servers) as driver:
                found[row] = measure(driver)
    save("depth", {"checkpoints": LONG, "against": SHORT, "rows": found})


if __name__ == "__main__":
    main()
