"""The figures of docs/upkeep.md: server time of every command on a long thread, the cost of `list` on it, and what
`keep_last=1` keeps.

    python -m bench.upkeep [--checkpoints 10000] [--steps 1000] [--runs 3]

Server time is what SLOWLOG says of single commands. On a machine that does other work single commands are stretched by
chance, so all is done in several runs; the table has the slowest command of each operation in its best run.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import date
from importlib.metadata import version
from typing import Any

import redis
from langchain_core.runnables import RunnableConfig

from bench.threads import Chain, config_of, long_thread
from redis_ckpt import RedisSaver
from tests.servers import REAL_KINDS, Server, start

NAMESPACES = ("", "memory", "call:1")
ALL: RunnableConfig = {"configurable": {"thread_id": "t"}}
LIMIT = 10
SHORT = 20
REPEATS = 200
LOGGED_US = 100  # a lower threshold would log each call that a script makes, which costs more than the calls

Operation = tuple[str, Callable[[], Any]]


def listings(saver: RedisSaver, thread_id: str, newest: str) -> Iterator[Operation]:
    """`list(limit=10)` in all its forms."""
    everywhere: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    root = config_of(thread_id)
    before = config_of(thread_id, "", newest)
    yield "root", lambda: list(saver.list(root, limit=LIMIT))
    yield "another namespace", lambda: list(saver.list(config_of(thread_id, "memory"), limit=LIMIT))
    yield "all namespaces", lambda: list(saver.list(everywhere, limit=LIMIT))
    yield "before", lambda: list(saver.list(root, before=before, limit=LIMIT))
    yield "all namespaces, before", lambda: list(saver.list(everywhere, before=before, limit=LIMIT))
    yield "filter", lambda: list(saver.list(root, filter={"source": "loop"}, limit=LIMIT))
    yield "all namespaces, filter", lambda: list(saver.list(everywhere, filter={"source": "loop"}, limit=LIMIT))
    yield "one id", lambda: list(saver.list(before, limit=LIMIT))
    yield "all threads", lambda: list(saver.list(None, limit=LIMIT))


def operations(server: Server, saver: RedisSaver, ids: list[str]) -> Iterator[Operation]:
    """Every operation on the thread "t", those that remove last."""
    keeping = RedisSaver(redis_client=server.raw(), keep_last=500)
    chain = Chain(saver, "t", "memory")
    yield "put, put_writes", lambda: [chain.step() for _ in range(20)]
    yield "get_tuple", lambda: [saver.get_tuple(config_of("t", ns)) for ns in NAMESPACES]
    yield "get_delta_channel_history", lambda: saver.get_delta_channel_history(config=config_of("t"), channels=["log"])
    nowhere = ["no such channel"]
    yield "the same, to the root", lambda: saver.get_delta_channel_history(config=config_of("t"), channels=nowhere)
    for name, call in listings(saver, "t", ids[:: len(NAMESPACES)][-4]):
        yield f"list, {name}", call
    yield "list, everything", lambda: list(saver.list(ALL))
    yield "list, filter without a match", lambda: list(saver.list(ALL, filter={"step": -1}))
    yield "threads", lambda: list(saver.threads())
    yield "stats", lambda: (saver.stats("t"), saver.stats())
    yield "expire, persist", lambda: (saver.expire("t", 3600), saver.persist("t"), saver.expire("t", None))
    yield "copy_thread (one COPY a key)", lambda: saver.copy_thread("t", "copy")
    yield "sweep, dry run", lambda: saver.sweep(["t"], keep_last=100, dry_run=True)
    yield "put with keep_last=500", lambda: Chain(keeping, "copy", "memory").step()
    yield "sweep, keep_last=2000", lambda: saver.sweep(["t"], keep_last=2000)
    yield "sweep, older_than", lambda: saver.sweep(["t"], older_than=1)
    yield "prune", lambda: saver.prune(["t", "copy"])
    yield "sweep, idle_for", lambda: saver.sweep(idle_for=0.001)
    yield "delete_thread", lambda: saver.delete_thread("t")


def server_times(kind: str, checkpoints: int) -> dict[str, tuple[float, str]]:
    """For each operation its slowest command, in milliseconds of server time, and the command."""
    server = start(kind)
    try:
        admin, saver = server.raw(), RedisSaver(redis_client=server.raw())
        saver.setup()
        admin.config_set("slowlog-max-len", 1_000_000)
        ids = long_thread(saver, "t", checkpoints, NAMESPACES)
        found: dict[str, tuple[float, str]] = {}
        for name, call in operations(server, saver, ids):
            admin.slowlog_reset()
            admin.config_set("slowlog-log-slower-than", LOGGED_US)
            call()
            admin.config_set("slowlog-log-slower-than", -1)
            entries = [
                (int(entry["duration"]) / 1000, bytes(entry["command"]).split()[0].decode())
                for entry in admin.slowlog_get(1_000_000)
            ]
            found[name] = max([found.get(name, (0.0, "")), *entries])
        return found
    finally:
        server.stop()


def print_server_times(checkpoints: int, runs: int) -> None:
    """A table over all servers: of each operation the slowest command, in the run in which it was fastest."""
    print(f"| operation | {' | '.join(f'{kind}: slowest command' for kind in REAL_KINDS)} |")
    print(f"|---|{'---|' * len(REAL_KINDS)}")
    times = {kind: [server_times(kind, checkpoints) for _ in range(runs)] for kind in REAL_KINDS}
    for name in times[REAL_KINDS[0]][0]:
        least = [min(run[name] for run in found) for found in times.values()]
        print(f"| {name} | {' | '.join(f'{ms:.2f} ms {command}' if ms else 'below 0.1 ms' for ms, command in least)} |")


def print_list_costs(checkpoints: int) -> None:
    """Each form of `list(limit=10)` on a long thread against one of 20 checkpoints a namespace, in turn."""
    print(f"| `list(limit={LIMIT})` | on {SHORT} | on {checkpoints:,} | ratio |\n|---|---|---|---|")
    servers = [start("valkey"), start("valkey")]
    try:
        forms = []
        for server, count in zip(servers, (SHORT * len(NAMESPACES), checkpoints), strict=True):
            saver = RedisSaver(redis_client=server.raw())
            ids = long_thread(saver, "t", count, NAMESPACES)
            forms.append(list(listings(saver, "t", ids[:: len(NAMESPACES)][-4])))
        for (name, short), (_, long) in zip(*forms, strict=True):
            times = _in_turn(short, long)
            print(f"| {name} | {times[0]:.2f} ms | {times[1]:.2f} ms | {times[1] / times[0]:.2f} |")
    finally:
        for server in servers:
            server.stop()


def _in_turn(*calls: Callable[[], Any]) -> list[float]:
    took: list[list[float]] = [[] for _ in calls]
    for _ in range(REPEATS):
        for call, times in zip(calls, took, strict=True):
            before = time.perf_counter()
            call()
            times.append((time.perf_counter() - before) * 1000)
    return [statistics.median(times) for times in took]


def print_shallow(steps: int) -> None:
    """What the server holds while a thread grows, with `keep_last=1` and without."""
    kinds = {"keep_last=1": (1, False), "keep_last=1, a delta channel": (1, True), "all kept": (None, False)}
    print(f"| steps | {' | '.join(f'{name}: records, bytes' for name in kinds)} |\n|---|{'---|' * len(kinds)}")
    server = start("valkey")
    try:
        raw = server.raw()
        chains = {
            name: Chain(RedisSaver(redis_client=raw, prefix=f"p{n}", keep_last=kept), "t", delta=delta)
            for n, (name, (kept, delta)) in enumerate(kinds.items())
        }
        for step in range(1, steps + 1):
            for chain in chains.values():
                chain.step()
            if step in (1, 10, 100) or step % (steps // 4) == 0:
                cells = [f"{_count(raw, n)}, {_memory(raw, n):,}" for n in range(len(kinds))]
                print(f"| {step} | {' | '.join(cells)} |")
    finally:
        server.stop()


def _count(raw: redis.Redis, number: int) -> int:
    return int(raw.zcard(f"p{number}:{{t}}:order"))


def _memory(raw: redis.Redis, number: int) -> int:
    return sum(int(raw.memory_usage(key, samples=0) or 0) for key in raw.scan_iter(match=f"p{number}:*"))


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, redis-py {version('redis')}\n")
    print_server_times(asked.checkpoints, asked.runs)
    print()
    print_list_costs(asked.checkpoints)
    print()
    print_shallow(asked.steps)


if __name__ == "__main__":
    main()
