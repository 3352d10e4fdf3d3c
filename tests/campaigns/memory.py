"""Servers whose memory is full: those that refuse to write, and those that take keys away."""

from __future__ import annotations

from typing import Any

import redis
from redis.exceptions import OutOfMemoryError

from redis_ckpt import AsyncRedisSaver, CheckpointerError, DamagedCheckpointError, RedisSaver
from tests.campaigns.graph import fault
from tests.campaigns.results import Result, Setting, product
from tests.campaigns.runs import Runs, during
from tests.savers import Facade, LoopThread, cfg
from tests.servers import Server, start
from tests.soak.content import place

ROOM_BYTES = 1 << 20
EVICTING_ROOM_BYTES = 2 << 20
TTL_SECONDS = 3600


def full(setting: Setting) -> Result:
    """`noeviction`: the memory is full, all is read, there is memory again, and runs go on."""
    result = Result("times that `maxmemory` was reached with `noeviction`")
    server = start(setting.kind, "--maxmemory-policy", "noeviction")
    try:
        result.server = product(server)
        raw = server.raw()
        with Runs(server.url or "", setting.folder, setting.width, tolerated=(OutOfMemoryError,)) as runs:

            def fill(_: int) -> None:
                before = runs.counts["raised OutOfMemoryError"]
                raw.config_set("maxmemory", int(raw.info("memory")["used_memory"]) + ROOM_BYTES)
                runs.wait_until(
                    lambda: runs.counts["raised OutOfMemoryError"] >= before + setting.width, "the memory was not full"
                )
                runs.check()
                raw.config_set("maxmemory", 0)
                result.add({"times full": 1}, [])

            during(runs, setting.amount, fill)
        runs.finish(result)
    finally:
        server.stop()
    return result


def evicted_lru(setting: Setting) -> Result:
    """`allkeys-lru`: any key may go."""
    return _evicted(setting, "allkeys-lru", {})


def evicted_ttl(setting: Setting) -> Result:
    """`volatile-ttl`, with threads that have a deadline."""
    return _evicted(setting, "volatile-ttl", {"ttl": TTL_SECONDS})


def _evicted(setting: Setting, policy: str, options: dict[str, Any]) -> Result:
    result = Result(f"keys evicted with `{policy}`")
    server = start(setting.kind, "--maxmemory-policy", policy)
    try:
        result.server = product(server)
        raw = server.raw()
        tolerated = (OutOfMemoryError, CheckpointerError)
        runs = Runs(server.url or "", setting.folder, setting.width, tolerated=tolerated, gives_up=True, **options)
        with runs:
            raw.config_set("maxmemory", int(raw.info("memory")["used_memory"]) + EVICTING_ROOM_BYTES)
            while _evictions(raw) < setting.amount and runs.is_well and not result.faults:
                runs.wait_for_turns(2)
                _look(server, runs, result)
        result.add({"torn": 0} | runs.counts, runs.faults)
        for _ in range(2):
            _look(server, runs, result)
        result.add({"keys evicted": _evictions(raw)}, [])
    finally:
        server.stop()
    return result


def _evictions(raw: redis.Redis) -> int:
    return int(raw.info("stats")["evicted_keys"])


def _look(server: Server, runs: Runs, result: Result) -> None:
    """Every thread is whole, or damaged and said to be, or gone."""
    told = runs.checker.acknowledged.read()
    expected = {
        t: (max((c for ns, c in told.checkpoints[t] if not ns), default=""), set(told.writes[t]))
        for t in told.checkpoints
    }
    loop = LoopThread()
    savers = [Facade(kind(server.url), loop) for kind in (RedisSaver, AsyncRedisSaver)]
    try:
        for n, (thread_id, (newest, writes)) in enumerate(expected.items()):
            result.add(*_judged(savers[n % 2], thread_id, newest, writes))
    finally:
        for saver in savers:
            saver.close()
        loop.stop()


def _judged(saver: Facade, thread_id: str, newest: str, writes: set[Any]) -> tuple[dict[str, int], list[str]]:
    try:
        found = saver.get_tuple(cfg(thread_id))
    except DamagedCheckpointError:
        return {"reads that say damaged": 1}, []
    if found is None:
        return {"reads of threads that are gone": 1}, []
    wrong = fault(found)
    checkpoint_id = found.checkpoint["id"]
    there = {task for task, _, _ in found.pending_writes or []}
    asked = {task for (ns, at), task in writes if (ns, at) == ("", checkpoint_id)}
    if checkpoint_id < newest:
        wrong = f"its newest is {newest!r}, acknowledged, and neither there nor said to be damaged"
    elif asked - there:
        wrong = f"the acknowledged writes of {sorted(asked - there)} are not there, and nobody says so"
    if wrong is None:
        return {"reads that are whole": 1}, []
    return {"torn": 1}, [f"{place(found)}: {wrong}"]
