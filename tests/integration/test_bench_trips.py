"""The round trips and bytes that the benchmarks assert hold on every server, for both savers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from bench.drivers import Awaiting, Blocking, Driver
from bench.trips import sent, trips
from redis_ckpt import AsyncRedisSaver, RedisSaver
from tests.proxy import Proxy
from tests.servers import on_real_servers

pytestmark = on_real_servers
LATE = 400


@pytest.fixture
def driver(colour: str, proxy: Proxy) -> Iterator[Driver]:
    if colour == "sync":
        with RedisSaver(proxy.url) as blocking:
            yield Blocking(blocking)
        return
    loop, saver = asyncio.new_event_loop(), AsyncRedisSaver(proxy.url)
    yield Awaiting(saver, loop)
    loop.run_until_complete(saver.aclose())
    loop.close()


def test_every_workload_costs_one_round_trip_an_operation(driver: Driver, proxy: Proxy) -> None:
    trips(driver, proxy)


def test_a_put_sends_no_more_than_its_values_need(driver: Driver, proxy: Proxy) -> None:
    sent(driver, proxy, LATE)
