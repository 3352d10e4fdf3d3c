"""LangGraph's own conformance suite: all eight capabilities, both classes, every server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES
from langgraph.checkpoint.conformance.report import CapabilityReport

from redis_ckpt import AsyncRedisSaver, RedisSaver
from tests.servers import Server

TESTS = 81
"""How many tests version 0.0.2 of the suite has; a later one has no fewer."""


def _validate(kind: type[RedisSaver] | type[AsyncRedisSaver], server: Server) -> CapabilityReport:
    async def factory() -> AsyncGenerator[RedisSaver | AsyncRedisSaver, None]:
        if server.url is not None:
            async with contextlib.aclosing(kind(server.url)) as saver:
                yield saver
        elif kind is RedisSaver:
            yield RedisSaver(redis_client=server.raw())
        else:
            async with server.araw() as client:
                yield AsyncRedisSaver(redis_client=client)

    registered = checkpointer_test(name=f"{kind.__name__} on {server.kind}")(factory)
    return asyncio.run(validate(registered))


@pytest.mark.parametrize("kind", [RedisSaver, AsyncRedisSaver])
def test_every_capability_is_there_and_passes(kind: type[RedisSaver] | type[AsyncRedisSaver], server: Server) -> None:
    report = _validate(kind, server)
    results = report.results
    failures = [f"{name}: {failure}" for name, result in results.items() for failure in result.failures]
    assert not failures, "\n".join(failures)
    assert set(results) == {capability.value for capability in ALL_CAPABILITIES}
    assert len(results) == 8
    assert all(result.detected and result.passed for result in results.values()), report.to_dict()
    assert sum(result.tests_skipped for result in results.values()) == 0
    assert sum(result.tests_passed for result in results.values()) >= TESTS
