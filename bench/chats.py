"""What is stored after so many turns of a chat that a real LangGraph graph holds.

    python -m bench.chats

Two graphs. "chat": each turn is one `invoke` with the user's message, and one model node that replies: two messages of
650 bytes a turn, three checkpoints. "agent": one run in which each step appends one message: one checkpoint a message.
"""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Annotated, Any, TypedDict

import psycopg
import redis
from langchain_core.messages import AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from bench.results import QUICK, save
from bench.savers import PRESENT, Servers
from bench.workloads import MESSAGE_BYTES, Saver, message

MARKS = (10, 25, 50, 100, 200) if QUICK else (10, 25, 50, 100, 200, 400, 600, 800, 1000)
PATIENCE_S = 5.0 if QUICK else 20.0
"""A saver that is not done by then stops at its next mark, but not before the one that it must reach."""
REACHED_BY_ALL, REACHED_BY_OURS = 200, MARKS[-1]  # the goal speaks of the last mark
ROWS = {"chat": ("sqlite", "postgres", "redis", "redis62"), "agent": ("sqlite", "postgres", "redis")}
TABLES = {
    "checkpoints": "thread_id checkpoint_ns checkpoint_id parent_checkpoint_id type checkpoint::text metadata::text",
    "checkpoint_blobs": "thread_id checkpoint_ns channel version type blob",
    "checkpoint_writes": "thread_id checkpoint_ns checkpoint_id task_id task_path channel type blob",
}

Stored = dict[str, int]


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Agent(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]


def chat(saver: Saver) -> Iterator[int]:
    """Turns of a chat; gives the number of messages after each."""

    def reply(state: Chat) -> dict[str, Any]:
        return {"messages": [message(2 * len(state["messages"]) + 1)]}

    graph = StateGraph(Chat)
    graph.add_node("model", reply)
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    app: Any = graph.compile(saver)
    for turn in range(MARKS[-1]):
        app.invoke({"messages": [message(4 * turn)]}, {"configurable": {"thread_id": "chat"}}, durability="sync")
        yield 2 * (turn + 1)


def agent(saver: Saver) -> Iterator[int]:
    """Steps of one long run; gives the number of messages after each."""

    def act(state: Agent) -> dict[str, Any]:
        return {"messages": [message(len(state["messages"]))]}

    graph = StateGraph(Agent)
    graph.add_node("act", act)
    graph.add_edge(START, "act")
    graph.add_conditional_edges("act", lambda state: "act" if len(state["messages"]) <= MARKS[-1] else END)
    app: Any = graph.compile(saver)
    config: Any = {"configurable": {"thread_id": "agent"}, "recursion_limit": MARKS[-1] + 10}
    steps = app.stream({"messages": [message(0)]}, config, stream_mode="updates", durability="sync")
    for number, _ in enumerate(steps):
        yield number + 2


KINDS: dict[str, Callable[[Saver], Iterator[int]]] = {"chat": chat, "agent": agent}


def redis_bytes(client: redis.Redis) -> Stored:
    """Names and values of all keys, and the memory that the server counts for them."""
    total = memory = 0
    for key in client.scan_iter(count=1000):
        total += len(key)
        memory += int(client.memory_usage(key, samples=0) or 0)
        if client.type(key) == b"hash":
            total += sum(len(field) + len(value) for field, value in client.hscan_iter(key, count=1000))
        elif client.type(key) == b"zset":
            total += sum(len(member) for member, _ in client.zscan_iter(key, count=1000))
        else:
            total += sum(len(member) for member in client.sscan_iter(key, count=1000))
    return {"bytes": total, "footprint": memory}


def postgres_bytes(conninfo: str) -> Stored:
    """The lengths of all columns, uncompressed, and the size of the tables with their indexes and TOAST."""
    total = disk = 0
    with psycopg.connect(conninfo) as connection:
        for table, columns in TABLES.items():
            lengths = " + ".join(f"coalesce(octet_length({column}), 0)" for column in columns.split())
            found = connection.execute(
                f"SELECT coalesce(sum({lengths}), 0), pg_total_relation_size('{table}') FROM {table}"
            ).fetchone()
            assert found is not None
            total, disk = total + int(found[0]), disk + int(found[1])
    return {"bytes": total, "footprint": disk}


def sqlite_bytes(path: str) -> Stored:
    """The lengths of all columns, and the size of the file."""
    total = 0
    with sqlite3.connect(path) as connection:
        for table in ("checkpoints", "writes"):
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[1] != "idx"]
            lengths = " + ".join(f"coalesce(length(CAST({name} AS BLOB)), 0)" for name in names)
            total += connection.execute(f"SELECT coalesce(sum({lengths}), 0) FROM {table}").fetchone()[0]
        pages, size = (connection.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "page_size"))
    connection.close()
    return {"bytes": total, "footprint": pages * size}


def stored(servers: Servers, store: str) -> Stored:
    """What a store holds now."""
    if store == "postgres":
        return postgres_bytes(servers.postgres)
    if store == "sqlite":
        return sqlite_bytes(str(servers.sqlite))
    with redis.Redis.from_url(getattr(servers, store).url) as client:
        return redis_bytes(client)


def measure(row: str, kind: str) -> list[dict[str, float]]:
    """The growth of one chat on servers of its own."""
    found: list[dict[str, float]] = []
    began = perf_counter()
    reached = REACHED_BY_OURS if PRESENT[row].is_ours else REACHED_BY_ALL
    with Servers() as servers, PRESENT[row].open(servers) as driver:
        stored_before = stored(servers, PRESENT[row].store)["footprint"]
        for turn, messages in enumerate(KINDS[kind](driver.saver), start=1):
            if turn in MARKS:
                now = stored(servers, PRESENT[row].store)
                text = messages * MESSAGE_BYTES
                now["footprint"] -= stored_before
                found.append({"turn": turn, "messages": text, **now})
                if turn >= reached and perf_counter() - began > PATIENCE_S:
                    break
    return found


def main() -> None:
    """Measure both graphs on every store."""
    save("chats", {kind: {row: measure(row, kind) for row in ROWS[kind] if row in PRESENT} for kind in KINDS})


if __name__ == "__main__":
    main()
