"""Work is bounded: on a long thread no script does more at a time than on a short one.

How long the server takes for it stands in docs/upkeep.md; here the calls that a script makes are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from bench.threads import Chain, config_of, long_thread
from redis_ckpt import RedisSaver
from tests.monitor import Lines, monitor
from tests.servers import Server

NAMESPACES = ("", "memory", "call:1")
CHECKPOINTS = 1_200
MOST_CALLS = 500
MOST_NAMES = 260
ALL: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture
def saver(server: Server) -> RedisSaver:
    saver = RedisSaver(redis_client=server.raw())
    saver.setup()
    return saver


@pytest.fixture
def ids(saver: RedisSaver) -> list[str]:
    return long_thread(saver, "t", CHECKPOINTS, NAMESPACES)


def most(lines: Lines) -> tuple[int, int]:
    """The most calls that one script made, and the most names that one call was given."""
    calls, names, now = 0, 0, 0
    for line in lines:
        now = now + 1 if line.from_script else 0
        calls = max(calls, now)
        if line.from_script:
            names = max(names, len(line.arguments))
    return calls, names


def operations(saver: RedisSaver, raw: redis.Redis) -> list[Callable[[], Any]]:
    keeping = RedisSaver(redis_client=raw, keep_last=200)
    chain = Chain(saver, "t", "memory")
    return [
        chain.step,
        lambda: saver.get_tuple(config_of("t")),
        lambda: saver.get_delta_channel_history(config=config_of("t"), channels=["log", "no such channel"]),
        lambda: list(saver.list(ALL)),
        lambda: list(saver.list(ALL, filter={"step": -1})),
        lambda: list(saver.list(None, limit=10)),
        lambda: (list(saver.threads()), saver.stats("t"), saver.stats()),
        lambda: (saver.expire("t", 3600), saver.persist("t"), saver.expire("t", None)),
        lambda: saver.copy_thread("t", "copy"),
        lambda: saver.sweep(["t"], keep_last=10, dry_run=True),
        Chain(keeping, "copy", "memory").step,
        lambda: saver.sweep(["t"], keep_last=200),
        lambda: saver.prune(["t"]),
        lambda: saver.sweep(idle_for=0.001),
        lambda: saver.delete_thread("t"),
    ]


@pytest.mark.parametrize("server", ["valkey"], indirect=True)
def test_no_script_does_more_the_longer_a_thread_is(
    saver: RedisSaver, ids: list[str], raw: redis.Redis, server: Server
) -> None:
    for number, call in enumerate(operations(saver, raw)):
        with monitor(server) as lines:
            call()
        calls, names = most(lines)
        assert calls <= MOST_CALLS, f"operation {number}: a script made {calls} calls"
        assert names <= MOST_NAMES, f"operation {number}: a call was given {names} names"
    assert raw.keys("ckpt:{*") == []


@pytest.mark.parametrize("server", ["valkey"], indirect=True)
def test_a_page_of_a_list_costs_the_same_on_a_long_thread(saver: RedisSaver, ids: list[str], server: Server) -> None:
    short = long_thread(saver, "short", 20 * len(NAMESPACES), NAMESPACES)
    forms: list[Callable[[str, Any], Any]] = [
        lambda t, before: saver.list(config_of(t), limit=10),
        lambda t, before: saver.list(config_of(t, "memory"), limit=10),
        lambda t, before: saver.list({"configurable": {"thread_id": t}}, limit=10),
        lambda t, before: saver.list(config_of(t), before=before, limit=10),
        lambda t, before: saver.list({"configurable": {"thread_id": t}}, before=before, limit=10),
        lambda t, before: saver.list(config_of(t), filter={"source": "loop"}, limit=10),
        lambda t, before: saver.list({"configurable": {"thread_id": t}}, filter={"source": "loop"}, limit=10),
        lambda t, before: saver.list(before, limit=10),
    ]
    for number, form in enumerate(forms):
        counts = []
        for thread_id, its in (("short", short), ("t", ids)):
            before = config_of(thread_id, "", its[:: len(NAMESPACES)][-4])
            with monitor(server) as lines:
                found = list(form(thread_id, before))
            assert found
            counts.append((len(lines.sent()), len(lines)))
        assert counts[0] == counts[1], f"form {number}"
