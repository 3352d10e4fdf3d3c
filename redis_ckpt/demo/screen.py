"""What the demo shows: at most 45 lines of 100 columns, plain text where it is not a terminal."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from statistics import median

from rich.console import Console
from rich.table import Table
from rich.text import Text

from redis_ckpt.demo.agent import REQUEST
from redis_ckpt.demo.story import FINISHED, QUOTES, THREAD, WAITING, Promise, Telling

WIDTH = 100
"""What the tables need to stand side by side; a narrower screen has them one below the other."""


class Screen:
    """Prints the acts as they happen, and the tables behind them."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        if not self._console.is_terminal and "COLUMNS" not in os.environ:
            self._console.width = WIDTH
        self._console.width = min(self._console.width, WIDTH)
        self._wide = self._console.width == WIDTH

    def title(self, server: str) -> None:
        """What this is, and on which server."""
        head = Table.grid(expand=True)
        head.add_column(no_wrap=True)
        head.add_column(justify="right", no_wrap=True)
        head.add_row(Text("redis_ckpt: an agent that survives kill -9", "bold"), Text(server, "dim"))
        self._console.print(head)
        self._line("user", REQUEST)

    def act(self, worker: int, told: Telling, text: str) -> None:
        """One line of the story."""
        self._line(f"worker {worker}", f"pid {told.pids[worker - 1]} {text}")

    def busy(self, text: str) -> AbstractContextManager[object]:
        """Show on a terminal that something is going on."""
        return self._console.status(text, spinner="line")  # plain ASCII

    def tables(self, told: Telling) -> None:
        """Who executed what, what is stored, and the history."""
        side_by_side = Table.grid(padding=(0, 3, 0, 0))
        side_by_side.add_row(_executions(told), _stored(told))
        above = [side_by_side] if self._wide else [_executions(told), "", _stored(told)]
        for part in ("", *above, "", _history(told, gap=2 if self._wide else 1)):
            self._console.print(part)
        self._line("calls", _calls(told))

    def verdict(self, promises: list[Promise], seconds: float) -> None:
        """Each promise, and how many of them were held."""
        grid = Table.grid(padding=(0, 2, 0, 0))
        columns = 2 if self._wide else 1
        for row in zip(*(promises[n::columns] for n in range(columns)), strict=True):
            grid.add_row(*(cell for promise in row for cell in (_mark(promise), promise.text)))
        self._console.print()
        self._console.print(grid)
        held = sum(promise.held for promise in promises)
        style = "bold green" if held == len(promises) else "bold red"
        self._console.print(Text(f"{held} of {len(promises)} promises held, in {seconds:.1f} s", style))

    def _line(self, who: str, text: str) -> None:
        line = Text.assemble((f"{who:<9} ", "bold cyan"), text)
        self._console.print(line, no_wrap=self._wide, overflow="ellipsis")


def _mark(promise: Promise) -> Text:
    return Text("ok", "green") if promise.held else Text("BROKEN", "bold red")


def _table(*headings: str, gap: int = 2) -> Table:
    """A table without lines. A heading that begins with `>` is one of numbers."""
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="bold", pad_edge=False)
    for heading in headings:
        justify = "right" if heading.startswith(">") else "left"
        table.add_column(heading.lstrip(">"), justify=justify, no_wrap=True)  # type: ignore[arg-type]
    return table


def _executions(told: Telling) -> Table:
    table = _table("executions", "worker 1", "worker 2", "worker 3", ">in all")
    for task in ("model", "find_suppliers", *QUOTES, "place_order"):
        cells = [str(told.runs(task, worker) or "") for worker in (1, 2, 3)]
        if task in WAITING:
            cells[0] += " killed"
        elif task in FINISHED and not cells[1]:
            cells[1] = "from Redis"
        table.add_row(task, *cells, str(told.runs(task)))
    return table


def _stored(told: Telling) -> Table:
    prefix = f"ckpt:{{{THREAD}}}:"
    table = _table(prefix, "type", ">entries", ">memory")
    for key in told.keys:
        table.add_row(key.name.removeprefix(prefix), key.kind, str(key.entries), _size(key.memory_bytes))
    entries, memory = sum(key.entries for key in told.keys), sum(key.memory_bytes for key in told.keys)
    table.add_row(f"{len(told.keys)} keys in Redis", "", str(entries), _size(memory), style="bold")
    return table


def _history(told: Telling, gap: int) -> Table:
    numbers = ">step", "worker", ">put ms", ">record", ">values", ">writes", ">bytes", ">ms each"
    table = _table("history", *numbers, "then runs", gap=gap)
    for before, step in zip([None, *told.steps], told.steps, strict=False):
        branch = "* " if not step.ns else "|\\* " if before and before.ns != step.ns else "| * "
        writes = [str(step.writes), _size(step.writes_bytes), f"{step.task_ms:.2f}"] if step.writes else [""] * 3
        sizes = [_size(step.record_bytes), _size(step.value_bytes)]
        worker = told.pids.index(step.pid) + 1 if step.pid in told.pids else "?"
        who = [f"{branch}{step.source}", str(step.step), str(worker)]
        table.add_row(*who, f"{step.put_ms:.2f}", *sizes, *writes, step.then)
    return table


def _calls(told: Telling) -> str:
    parts = []
    for name in ("put", "put_writes", "get_tuple"):
        times = [line["ms"] for line in told.said if line["event"] == name]
        parts.append(f"{len(times)} {name} {median(times or [0]):.2f} ms")
    return "medians of " + ", ".join(parts)


def _size(n: int) -> str:
    return f"{n} B" if n < 1000 else f"{n / 1000:.1f} kB"
