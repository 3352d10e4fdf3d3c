"""RedisSaver against the floor: a plain SET or GET of the same bytes, and the serialisation alone.

    python -m bench.floor

For `put` the floor is `dumps_typed` of the values that are new and of the metadata, and one SET of as many bytes as
the put sends; for `get_tuple` one GET of as many bytes as it receives, and `loads_typed` of all values. The bytes are
counted at the socket, the serialiser is the saver's own, the client is redis-py on the same server. Both take turns.
"""

from __future__ import annotations

import gc
import statistics
from contextlib import ExitStack
from time import perf_counter
from typing import Any

import redis

from bench.conftest import grow
from bench.drivers import Blocking, Driver
from bench.results import QUICK, rounded, save
from bench.savers import PRESENT, Servers, another_worker
from bench.workloads import WORKLOADS, Put, Thread, Workload
from redis_ckpt import RedisSaver
from tests.proxy import Proxy

ROUNDS = 10 if QUICK else 60
HISTORY = 12
NAMES = ("short", "chat", "wide", "big", "fanout")


def bytes_moved(port: int, workload: Workload) -> tuple[int, int, int]:
    """What a put sends, and what a get_tuple receives in this process and in one that remembers nothing."""
    with Proxy(port) as proxy, RedisSaver(proxy.url) as saver:
        driver = Blocking(saver)
        thread = Thread(workload, saver, workload.size - HISTORY)
        grow(driver, thread, HISTORY)
        with proxy.measure() as put:
            driver("put", *thread.next_put())
        with proxy.measure() as known:
            driver("get_tuple", thread.config)
        with RedisSaver(proxy.url) as other:
            other.get_tuple(Thread(workload, saver, 0).config)  # connects
            with proxy.measure() as unknown:
                other.get_tuple(thread.config)
    return put.bytes_up, known.bytes_down, unknown.bytes_down


class Floor:
    """The least that an operation of this size can cost."""

    def __init__(self, client: redis.Redis, serde: Any, moved: tuple[int, int, int]) -> None:
        self._client, self._serde = client, serde
        self._sent = b"x" * moved[0]
        client.set("known", b"x" * moved[1])
        client.set("unknown", b"x" * moved[2])

    def put(self, put: Put) -> float:
        """Seconds for what `put` would have to do."""
        before = perf_counter()
        for channel in put.new_versions:
            self._serde.dumps_typed(put.checkpoint["channel_values"][channel])
        self._serde.dumps_typed(put.metadata)
        self._client.set("sent", self._sent)
        return perf_counter() - before

    def get(self, key: str, values: list[tuple[str, bytes]]) -> float:
        """Seconds for what `get_tuple` would have to do."""
        before = perf_counter()
        self._client.get(key)
        for value in values:
            self._serde.loads_typed(value)
        return perf_counter() - before


class Contest:
    """A saver, the same in another process, and their floor, on one workload."""

    def __init__(self, driver: Driver, other: Driver, client: redis.Redis, port: int, workload: Workload) -> None:
        self._driver, self._other, self._workload = driver, other, workload
        self._moved = bytes_moved(port, workload)
        self._floor = Floor(client, driver.saver.serde, self._moved)
        self._taken: dict[str, list[tuple[float, float]]] = {"put": [], "get_tuple": [], "get_tuple elsewhere": []}

    def run(self) -> dict[str, dict[str, float]]:
        """Microseconds of both by operation."""
        gc.collect()
        for n in range(ROUNDS):
            if n % self._workload.rounds == 0:
                thread = Thread(self._workload, self._driver.saver, self._workload.size - HISTORY)
                grow(self._driver, thread, HISTORY)
            self._step(thread)
        found = {}
        for (name, pairs), size in zip(self._taken.items(), self._moved, strict=True):
            saver, floor = (rounded(statistics.median(times) * 1e6) for times in zip(*pairs, strict=True))
            found[name] = {"saver": saver, "floor": floor, "ratio": rounded(saver / floor), "bytes": size}
        return found

    def _step(self, thread: Thread) -> None:
        put, floor = thread.next_put(), self._floor
        values = [self._driver.saver.serde.dumps_typed(value) for value in put.checkpoint["channel_values"].values()]
        self._taken["put"].append((self._driver.seconds("put", *put), floor.put(put)))
        ours = self._driver.seconds("get_tuple", thread.config)
        self._taken["get_tuple"].append((ours, floor.get("known", values)))
        ours = self._other.seconds("get_tuple", thread.config)
        self._taken["get_tuple elsewhere"].append((ours, floor.get("unknown", values)))


def main() -> None:
    """Measure the workloads on Valkey."""
    row = PRESENT["redis"]
    with Servers() as servers, ExitStack() as stack:
        driver = stack.enter_context(row.open(servers))
        other = stack.enter_context(another_worker(row, driver, servers))
        client = stack.enter_context(redis.Redis.from_url(servers.valkey.url or ""))
        port = servers.valkey.port
        save("floor", {name: Contest(driver, other, client, port, WORKLOADS[name]).run() for name in NAMES})


if __name__ == "__main__":
    main()
