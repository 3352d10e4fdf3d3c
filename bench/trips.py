"""Round trips and bytes of each operation, asserted at the socket. Nothing is timed here.

    python -m bench.trips

`tests/integration/test_bench_trips.py` runs the same checks on every server and both savers.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from typing import Any

from bench.children import stop_in_order
from bench.drivers import Awaiting, Blocking, Driver
from bench.results import QUICK, save
from bench.workloads import WORKLOADS, Put, Thread
from redis_ckpt import AsyncRedisSaver, RedisSaver
from tests.proxy import Proxy
from tests.servers import REAL_KINDS, start

PAGE = 16
CHECKPOINTS = 2 * PAGE + 8
EXPECTED = {
    "put": 1,
    "put_writes": 1,
    "get_tuple": 1,
    "list(10)": 1,
    f"list of {CHECKPOINTS}, pages of {PAGE}": 3,
    "delete_thread": 1,
}
"""Operation -> round trips."""

ENVELOPE_BYTES = 2_000
"""What a put may send beside the values: the script's digest, names, record, metadata."""
EARLY, LATE = 20, 400 if QUICK else 2_000
"""Messages of the chat: turns 10 and 1,000, with two messages a turn."""
GROWTH = 2.0
AROUND = 6


def warm(driver: Driver) -> None:
    """Do everything once: connection and scripts are there then."""
    thread = Thread(WORKLOADS["short"], driver.saver, 0)
    driver("put", *thread.next_put())
    driver("put_writes", *thread.next_writes()[0])
    driver("get_tuple", thread.config)
    driver("list", thread.config)
    driver("delete_thread", thread.thread_id)


def trips(driver: Driver, proxy: Proxy) -> dict[str, int]:
    """Round trips of each operation; AssertionError where they are not the expected ones."""
    warm(driver)
    found: dict[str, int] = {}

    def count(name: str, call: Callable[[], Any]) -> None:
        with proxy.measure() as counts:
            call()
        found[name] = max(found.get(name, 0), counts.trips)

    for workload in (w for w in WORKLOADS.values() if w.name != "deep"):
        thread = Thread(workload, driver.saver, 0)
        for _ in range(3):
            put = thread.next_put()
            count("put", lambda put=put: driver("put", *put))  # type: ignore[misc]
            for writes in thread.next_writes():
                count("put_writes", lambda writes=writes: driver("put_writes", *writes))  # type: ignore[misc]
            count("get_tuple", lambda config=thread.config: driver("get_tuple", config))  # type: ignore[misc]
    thread = Thread(WORKLOADS["short"], driver.saver, 0)
    for _ in range(CHECKPOINTS):
        driver("put", *thread.next_put())
    count("list(10)", lambda: driver("list", thread.config, limit=10))
    count(f"list of {CHECKPOINTS}, pages of {PAGE}", lambda: driver("list", thread.config))
    count("delete_thread", lambda: driver("delete_thread", thread.thread_id))
    assert found == EXPECTED, found
    return found


def sent(driver: Driver, proxy: Proxy, late: int = LATE) -> dict[str, float]:
    """Bytes of the puts early and late in a chat; AssertionError where they are more than the values need."""
    thread = Thread(WORKLOADS["chat"], driver.saver, 0)
    found = {}
    for name, number in (("early", EARLY), ("late", late)):
        while thread.number < number:
            driver("put", *thread.next_put())
        found[name] = statistics.median(_bytes_of_put(driver, proxy, thread.next_put()) for _ in range(AROUND))
    found["growth"] = found["late"] / found["early"]
    assert found["growth"] <= GROWTH, found
    return found


def _bytes_of_put(driver: Driver, proxy: Proxy, put: Put) -> int:
    values = put.checkpoint["channel_values"]
    needed = sum(len(driver.saver.serde.dumps_typed(values[channel])[1]) for channel in put.new_versions)
    with proxy.measure() as counts:
        driver("put", *put)
    assert counts.bytes_up <= needed + ENVELOPE_BYTES, (counts.bytes_up, needed)
    return counts.bytes_up


def check(driver: Driver, proxy: Proxy, late: int = LATE) -> dict[str, Any]:
    """All checks on one saver, whose server is reached through the proxy."""
    return {"trips": trips(driver, proxy), "sent": sent(driver, proxy, late)}


def main() -> None:
    """Check both savers on every server."""
    stop_in_order()
    found: dict[str, Any] = {}
    for kind in REAL_KINDS:
        server = start(kind)
        loop = asyncio.new_event_loop()
        try:
            with Proxy(server.port) as proxy:
                blocking, awaiting = RedisSaver(proxy.url), AsyncRedisSaver(proxy.url)
                found[f"RedisSaver, {kind}"] = check(Blocking(blocking), proxy)
                found[f"AsyncRedisSaver, {kind}"] = check(Awaiting(awaiting, loop), proxy)
                blocking.close()
                loop.run_until_complete(awaiting.aclose())
        finally:
            loop.close()
            server.stop()
    save("trips", found)


if __name__ == "__main__":
    main()
