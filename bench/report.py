"""Writes `results.md` and the pictures from the raw figures.

python -m bench.report
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bench.goals import goals
from bench.pictures import draw, duration, plain
from bench.results import OUT, QUICK, load
from bench.savers import ROWS, Row
from bench.workloads import WORKLOADS

Figures = dict[str, Any]

FAIRNESS = """\
- All servers run on the same machine as the benchmark and are reached over TCP on the loopback, but for the row that
  says unix socket. SQLite is a file.
- PostgreSQL and SQLite have their default settings: a commit waits for the disk. Valkey and Redis run with the
  append-only file on, `appendfsync everysec`, so a crash of the machine may cost the last second. The rows with
  `synchronous_commit=off` give PostgreSQL that same promise.
- The Postgres savers run on a psycopg pool of up to 20 connections with `autocommit=True`, `prepare_threshold=0` and
  `row_factory=dict_row`, as their documentation asks. They hold one lock per saver around every operation; the
  throughput row "one for each task" shows them without it.
- Latencies are of single calls in one process, timed inside the saver's call, inside the event loop for the async
  savers, with the garbage collector off. The savers take turns, so a drift of the machine hits all. A virtual machine
  changes its pace all the time: differences below a fifth say nothing.
- "elsewhere" is a `get_tuple` by a process that has never seen the thread and has nothing of it in memory.
- "Bytes of the messages" is the length of their text. What is stored beside it, such as names, ids, tool calls and
  token counts, counts as overhead, for all savers alike.
- The savers of langgraph-checkpoint-redis and langgraph-checkpoint-aws take part where they are installed in `.venv`;
  the first needs a server with its modules, named by BENCH_REDIS_STACK_URL."""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def facts(figures: Figures) -> str:
    """The machine and the versions."""
    return "\n".join(f"- {name}: {value}" for name, value in figures["machine"].items())


def latencies(figures: Figures) -> Iterator[str]:
    """A table for each workload, of medians and 95th percentiles."""
    for workload, by_operation in figures["operations"].items():
        rows = []
        for name, row in ROWS.items():
            found = [cells[name] for cells in by_operation.values() if name in cells]
            times = [f"{duration(cell['median'])} / {duration(cell['p95'])}" for cell in found]
            rows.append([row.title, *(times or _not_run(row, len(by_operation)))])
        calls = min(cell["calls"] for cells in by_operation.values() for cell in cells.values())
        yield f"### {WORKLOADS[workload].title}\n\nOf {calls} calls.\n\n{table(['saver', *by_operation], rows)}"


def _not_run(row: Row, cells: int) -> list[str]:
    return [f"not run: {row.why_not() or 'added since'}", *[""] * (cells - 1)]


def throughput(figures: Figures) -> str:
    """Operations per second by concurrency."""
    entries = figures["throughput"].values()
    levels = sorted(next(iter(entries))["rates"], key=int)
    rows = [[entry["title"], *(f"{entry['rates'][level]:,.0f}" for level in levels)] for entry in entries]
    return table(["saver", *(f"{level} runs" for level in levels)], rows)


def stored(figures: Figures) -> Iterator[str]:
    """The growth of both chats."""
    titles = {
        "chat": "One invoke a turn: two messages, three checkpoints",
        "agent": "One step a turn: one message, one checkpoint",
    }
    for kind, by_row in figures["chats"].items():
        turns = sorted({entry["turn"] for marks in by_row.values() for entry in marks})
        rows = []
        for row, marks in by_row.items():
            at = {entry["turn"]: entry for entry in marks}
            for what, title in (("bytes", "names and values"), ("footprint", _footprint(row))):
                cells = [f"{at[turn][what] / at[turn]['messages']:.1f}" if turn in at else "-" for turn in turns]
                rows.append([ROWS[row].title, title, *cells])
        yield f"### {titles[kind]}\n\n{table(['saver', 'counted', *(f'{turn:,}' for turn in turns)], rows)}"


def _footprint(row: str) -> str:
    return {"postgres": "tables, TOAST, indexes on disk", "sqlite": "file"}.get(row, "memory (MEMORY USAGE)")


def sent(figures: Figures) -> str:
    """Bytes of a put by turn."""
    turns = [mark["turn"] for mark in next(iter(figures["sent"].values()))]
    rows = [[ROWS[row].title, *(f"{mark['sent']:,.0f}" for mark in marks)] for row, marks in figures["sent"].items()]
    return table(["saver", *(f"turn {turn:,}" for turn in turns)], rows)


def depth(figures: Figures) -> str:
    """list(10) on long and short threads."""
    found = figures["depth"]
    rows = [
        [ROWS[row].title, duration(of["short"]), duration(of["long"]), f"{of['ratio']:.2f}"]
        for row, of in found["rows"].items()
    ]
    return table(["saver", f"on {found['against']}", f"on {found['checkpoints']:,}", "ratio"], rows)


def floor(figures: Figures) -> str:
    """Our operations against a SET or GET of the same bytes and the serialisation."""
    rows = [
        [
            WORKLOADS[workload].title,
            operation,
            f"{plain(of['bytes'])}B",
            duration(of["floor"]),
            duration(of["saver"]),
            f"{of['ratio']:.2f}",
        ]
        for workload, by_operation in figures["floor"].items()
        for operation, of in by_operation.items()
    ]
    return table(["workload", "operation", "bytes moved", "floor", "RedisSaver", "ratio"], rows)


def agent(figures: Figures) -> str:
    """The cost of a step in a real graph."""
    found = figures["agent"]["us_by_step"]
    rows = []
    for row, title in figures["agent"]["titles"].items():
        base = "amemory" if row in ("amemory", "apostgres", "aredis") else "memory"
        cells = [duration(times[row]) if row == base else _more(times[row] - times[base]) for times in found.values()]
        rows.append([title, *cells])
    return table(["saver", *(f'durability="{mode}"' for mode in found)], rows)


def _more(microseconds: float) -> str:
    return f"{'-' if microseconds < 0 else '+'}{duration(abs(microseconds))}"


def chapters(figures: Figures) -> Iterator[str]:
    """The report, piece by piece."""
    yield "# Benchmarks"
    yield (
        "Made by `make bench`; the raw figures are in `results.json` beside this file. Ratios carry over to other "
        "machines, single times do not."
    )
    if QUICK:
        yield "This is a quick run (`BENCH_QUICK=1`): few rounds, smaller sizes, figures of no authority."
    yield "## Goals"
    yield table(["work", "goal", "measured", ""], [goal.cells for goal in goals(figures)])
    yield f"## Machine and versions\n\n{facts(figures)}"
    yield f"## How it is measured\n\n{FAIRNESS}"
    yield "## Latency by operation\n\n![Latency by operation](latency.png)"
    yield "Median / 95th percentile."
    yield from latencies(figures)
    yield "## Throughput by concurrency\n\n![Throughput by concurrency](throughput.png)"
    yield "Operations per second. A run is `aget_tuple` and three steps of `aput` and `aput_writes`, on a short chat."
    yield throughput(figures)
    yield "## Bytes stored by turn\n\n![Bytes stored by turn](stored.png)"
    yield 'As multiples of the bytes of the messages; "-": the saver took too long to get there.'
    yield from stored(figures)
    yield "## Bytes sent by turn\n\n![Bytes sent by turn](sent.png)"
    yield "Bytes that one put sends, counted at the socket."
    yield sent(figures)
    yield "## A real graph: an agent of 50 steps\n\n![Time of a step over InMemorySaver](agent.png)"
    yield (
        "The time of a step on InMemorySaver, and what the others add. A saver that works beside the graph can come "
        "out at nothing or, by chance, below."
    )
    yield agent(figures)
    yield f"## list(limit=10) on long threads\n\n{depth(figures)}"
    yield "## Against the floor"
    yield (
        "The floor of `put` is serialising the new values and one SET of the bytes that the put sends; that of "
        "`get_tuple` is one GET of the bytes that it receives and restoring all values. Valkey, one connection. Each "
        "thread is measured on its way to the size of its workload, call by call in turns with the floor, so the times "
        "differ from those above. A `get_tuple` may be below its floor: messages that it has restored before it copies."
    )
    yield floor(figures)


def main() -> None:
    """Write everything, and print the goals."""
    figures = load()
    draw(figures, OUT)
    (OUT / "results.md").write_text("\n\n".join(chapters(figures)) + "\n", "utf-8")
    print(table(["work", "goal", "measured", ""], [goal.cells for goal in goals(figures)]))
    print(f"\nThe whole report is in {OUT}/results.md")


if __name__ == "__main__":
    main()
