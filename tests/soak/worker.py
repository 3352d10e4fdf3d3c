"""One process of the soak: `python -m tests.soak.worker ROLE NUMBER URL SECONDS SEED`.

It says `ready`, begins when it reads a line, and ends with a line of JSON: what it did, and what must be there now.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import redis

from redis_ckpt import AsyncRedisSaver, CheckpointerError, DamagedCheckpointError, RedisSaver, StorageVersionError
from tests.savers import Facade, LoopThread
from tests.soak.content import BrokenError, times_left
from tests.soak.lines import Hand
from tests.soak.writers import BRANCHES, BRIEF, SHARED, Report, Writer

HOUR = 3600.0
OPTIONS: tuple[dict[str, Any], ...] = (
    {"ttl": HOUR},
    {"ttl": 2 * HOUR},
    {"ttl": HOUR, "keep_last": 3, "refresh_on_read": True},
    {"ttl": {"default_ttl": 90, "refresh_on_read": True}},
)
WRITERS = len(OPTIONS)
ASYNC_WRITER, GRAPH_WRITER = 1, 3
IDLE_SECONDS = 2.0
SOCKET_SECONDS = 30.0


class Order(NamedTuple):
    """What the command line says."""

    role: str
    number: int
    url: str
    seconds: float
    seed: int


class Worker(Protocol):
    hand: Hand

    def turn(self) -> None: ...

    def report(self, failures: list[str]) -> Report: ...


class Sweeper:
    """Removes what may go, all the time, each time by other limits; looks at totals in between."""

    def __init__(self, hand: Hand) -> None:
        self.hand, self.saver = hand, hand.saver
        self._kinds: tuple[Callable[[], Any], ...] = (
            lambda: self._sweep(keep_last=hand.random.randint(1, 5)),
            lambda: self._sweep(older_than=hand.random.uniform(0, 2)),
            lambda: self._sweep(keep_last=hand.random.randint(2, 9), older_than=hand.random.uniform(0.1, 1)),
            lambda: self._sweep(self._some(), keep_last=1),
            lambda: self._sweep(self._some(), older_than=0),
            lambda: self._sweep([t for t in self._ids() if t.startswith(BRIEF)], idle_for=IDLE_SECONDS),
            lambda: self._sweep(idle_for=HOUR),
            self._sweep,
            lambda: self._sweep(keep_last=1, older_than=0, idle_for=HOUR, dry_run=True),
            self._press,
            self._press,
            self._prune,
            self._look,
        )

    def turn(self) -> None:
        self.hand.random.choice(self._kinds)()

    def _ids(self) -> list[str]:
        return [info.thread_id for info in self.saver.threads()]

    def _some(self) -> list[str]:
        ids = self._ids()
        return self.hand.random.sample(ids, min(len(ids), 4))

    def _sweep(self, thread_ids: list[str] | None = None, **limits: Any) -> None:
        report = self.saver.call("sweep", thread_ids, **limits)
        for thread_id, error in report.failures.items():
            self._gave_up(thread_id, error)
        counts = self.hand.counts
        counts["dry runs" if limits.get("dry_run") else "sweeps"] += 1
        if not limits.get("dry_run"):
            counts["swept"] += report.checkpoints

    def _press(self) -> None:
        """Again and again on threads that change all the time, so that a plan is often overtaken."""
        hot = [t for t in self._ids() if t in SHARED or t.endswith(BRANCHES)]
        chosen = self.hand.random.sample(hot, min(len(hot), 3))
        for _ in range(10):
            self._sweep(chosen, keep_last=1)

    def _prune(self) -> None:
        for thread_id in self._some():
            try:
                self.saver.prune([thread_id])
            except CheckpointerError as error:
                self._gave_up(thread_id, error)
        self.hand.counts["sweeps"] += 1

    def _gave_up(self, thread_id: str, error: CheckpointerError) -> None:
        """A thread may be too busy to be swept; then it is whole, and the next sweep will do."""
        if isinstance(error, (DamagedCheckpointError, StorageVersionError)):
            raise BrokenError(f"sweeping thread {thread_id!r}: {error}")
        self.hand.counts["too busy"] += 1

    def _look(self) -> None:
        """Figures are of no one moment, so little can be said of them; but the keys of a thread live equally long."""
        self.saver.call("stats")
        for thread_id in self._some():
            self.saver.call("stats", thread_id)
        for thread_id in self._ids():
            times_left(self.hand.raw, thread_id)

    def report(self, failures: list[str]) -> Report:
        return Report(dict(self.hand.counts), failures, [], {}, {}, {})


def work(worker: Worker, seconds: float) -> Report:
    """Turns until the time is over or something fails."""
    end = time.monotonic() + seconds
    failures: list[str] = []
    while time.monotonic() < end and not failures:
        try:
            worker.turn()
        except BrokenError as error:
            failures.append(f"{worker.hand.name}: {error}")
        except Exception:
            failures.append(f"{worker.hand.name}: {traceback.format_exc()}")
    return worker.report(failures)


def _worker(order: Order, loop: LoopThread) -> Worker:
    options: dict[str, Any] = {"connection_args": {"socket_timeout": SOCKET_SECONDS}}
    colour: type[RedisSaver | AsyncRedisSaver] = RedisSaver
    if order.role == "writer":
        options |= OPTIONS[order.number]
        colour = AsyncRedisSaver if order.number == ASYNC_WRITER else RedisSaver
    saver = Facade(colour(order.url, **options), loop)
    hand = Hand(f"{order.role}-{order.number}", saver, redis.Redis.from_url(order.url), order.seed)
    if order.role == "sweeper":
        return Sweeper(hand)
    if order.number != GRAPH_WRITER:
        return Writer(hand)
    from tests.soak.graph import GraphWriter  # slow to import, and nobody else needs it

    return GraphWriter(hand)


def main(arguments: list[str]) -> int:
    role, number, url, seconds, seed = arguments
    order = Order(role, int(number), url, float(seconds), int(seed))
    loop = LoopThread()
    worker = _worker(order, loop)
    try:
        print("ready", flush=True)
        if not sys.stdin.readline():
            return 1
        print(json.dumps(work(worker, order.seconds)._asdict()), flush=True)
    finally:
        worker.hand.saver.close()
        loop.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
