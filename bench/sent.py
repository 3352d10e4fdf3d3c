"""Bytes that a put sends, by the turn of the chat: counted at the socket, by a proxy between saver and server.

    python -m bench.sent

A chat of messages of 650 bytes, two a turn, one checkpoint and its writes a message. The figure of a turn is the median
of ten puts around it, in both directions. RedisSaver plays the whole chat; PostgresSaver, which looks at no earlier
value, begins shortly before each mark.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bench.conftest import grow
from bench.drivers import Blocking, Driver
from bench.results import QUICK, save
from bench.savers import PRESENT, Servers, postgres_saver
from bench.workloads import WORKLOADS, Thread
from redis_ckpt import RedisSaver
from tests.proxy import Proxy

TURNS = (10, 100, 200) if QUICK else (10, 50, 100, 200, 350, 500, 750, 1000)
AROUND = 10
MESSAGES_A_TURN = 2
BEFORE_A_MARK = 3

Figures = list[dict[str, float]]


def window(driver: Driver, proxy: Proxy, thread: Thread, turn: int) -> dict[str, float]:
    """The next ten puts."""
    up, down = [], []
    for _ in range(AROUND):
        with proxy.measure() as counts:
            driver("put", *thread.next_put())
        up.append(counts.bytes_up)
        down.append(counts.bytes_down)
        for writes in thread.next_writes():
            driver("put_writes", *writes)
    return {"turn": turn, "sent": statistics.median(up), "received": statistics.median(down)}


def whole_chat(driver: Driver, proxy: Proxy) -> Figures:
    """One thread from its first message to the last mark."""
    thread, found = Thread(WORKLOADS["chat"], driver.saver, 0), []
    for turn in TURNS:
        grow(driver, thread, turn * MESSAGES_A_TURN - AROUND // 2 - thread.number)
        found.append(window(driver, proxy, thread, turn))
    return found


def marks_only(driver: Driver, proxy: Proxy) -> Figures:
    """A thread for each mark."""
    found = []
    for turn in TURNS:
        first = turn * MESSAGES_A_TURN - AROUND // 2 - BEFORE_A_MARK
        thread = Thread(WORKLOADS["chat"], driver.saver, first)
        grow(driver, thread, BEFORE_A_MARK)
        found.append(window(driver, proxy, thread, turn))
    return found


@contextmanager
def behind(proxy: Proxy, servers: Servers, row: str) -> Iterator[Driver]:
    """A saver that reaches its server through the proxy."""
    if PRESENT[row].store == "postgres":
        conninfo = make_conninfo(servers.postgres, port=proxy.port)
        with postgres_saver(conninfo) as saver:
            yield Blocking(saver)
    else:
        with RedisSaver(proxy.url) as ours:
            yield Blocking(ours)


def measure(servers: Servers, row: str) -> Figures:
    """The figures of one saver."""
    store = PRESENT[row].store
    port: Any = conninfo_to_dict(servers.postgres)["port"] if store == "postgres" else getattr(servers, store).port
    with Proxy(int(port)) as proxy, behind(proxy, servers, row) as driver:
        return (marks_only if store == "postgres" else whole_chat)(driver, proxy)


def main() -> None:
    """Measure every saver that has a socket."""
    rows = [row for row in ("postgres", "redis", "redis62") if row in PRESENT]
    with Servers() as servers:
        save("sent", {row: measure(servers, row) for row in rows})


if __name__ == "__main__":
    main()
