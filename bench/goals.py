"""What was aimed at, and whether the figures reach it. Every ratio is of two figures of one run on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Figures = dict[str, Any]

AGAINST_POSTGRES = {"put": 2.5, "put_writes": 2.5, "get_tuple": 3.0, "list(10)": 2.5}
CONCURRENCY = "64"
MOST_STORED = 6.0
MOST_SENT = 2.0
MOST_DEEPER = 1.5
CHATS = {"agent": "one message a turn, one checkpoint", "chat": "two messages a turn, three checkpoints"}


@dataclass(frozen=True)
class Goal:
    """One line of the table."""

    work: str
    goal: float
    measured: float | None
    """None where it was not measured, as in a quick run."""
    most: bool = False
    """Whether the goal is a ceiling."""
    unit: str = "x"

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached."""
        if self.measured is None:
            return None
        return self.measured <= self.goal if self.most else self.measured >= self.goal

    @property
    def cells(self) -> list[str]:
        """Work, goal, measured, verdict."""
        measured = "not measured in a quick run" if self.measured is None else f"{self.measured:.3g} {self.unit}"
        verdict = {True: "met", False: "**missed**", None: ""}[self.met]
        return [self.work, f"at {'most' if self.most else 'least'} {self.goal:g} {self.unit}", measured, verdict]


def goals(figures: Figures) -> list[Goal]:
    """All lines."""
    return [*_latency(figures), *_throughput(figures), *_bytes(figures), *_list_and_trips(figures)]


def ratio(operations: Figures, workload: str, operation: str, other: str, ours: str = "redis") -> float:
    """How many times faster our row is than another."""
    cell = operations[workload][operation]
    return float(cell[other]["median"] / cell[ours]["median"])


def _latency(figures: Figures) -> Iterator[Goal]:
    operations = figures["operations"]
    for operation, least in AGAINST_POSTGRES.items():
        yield Goal(
            f"{operation}, short chat: faster than PostgresSaver",
            least,
            ratio(operations, "short", operation, "postgres"),
        )
    for operation, least in (("put", 1.0), ("get_tuple", 2.0)):
        yield Goal(
            f"{operation}, 200 messages: faster than InMemorySaver",
            least,
            ratio(operations, "chat", operation, "memory"),
        )


def _throughput(figures: Figures) -> Iterator[Goal]:
    rates = {row: entry["rates"][CONCURRENCY] for row, entry in figures["throughput"].items()}
    for other, name, least in (("apostgres", "AsyncPostgresSaver", 8.0), ("memory", "InMemorySaver", 0.5)):
        work = f"{CONCURRENCY} concurrent asyncio runs, operations/s: AsyncRedisSaver by {name}"
        yield Goal(work, least, rates["aredis"] / rates[other])


def _bytes(figures: Figures) -> Iterator[Goal]:
    for turns in (200, 1000):
        for kind, form in CHATS.items():
            marks = {entry["turn"]: entry for entry in figures["chats"][kind]["redis"]}
            mark = marks.get(turns)
            stored = mark["bytes"] / mark["messages"] if mark else None
            work = f"bytes stored, {turns:,} turns of a chat ({form}), by the bytes of the messages"
            yield Goal(work, MOST_STORED, stored, most=True)
    sent = {entry["turn"]: entry["sent"] for entry in figures["sent"]["redis"]}
    growth = sent[1000] / sent[10] if 1000 in sent else None
    yield Goal("bytes sent per put, turn 1,000 by turn 10", MOST_SENT, growth, most=True)


def _list_and_trips(figures: Figures) -> Iterator[Goal]:
    depth = figures["depth"]
    work = f"list(limit=10) on {depth['checkpoints']:,} checkpoints by the same on {depth['against']}"
    yield Goal(work, MOST_DEEPER, depth["rows"]["redis"]["ratio"], most=True)
    for operation in ("put", "put_writes", "get_tuple", "list(10)", "delete_thread"):
        most = max(saver["trips"][operation] for saver in figures["trips"].values())
        yield Goal(f"round trips of {operation}, all workloads and servers", 1, most, most=True, unit="trips")
