"""The pictures of the report, from the raw figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bench.savers import ROWS

matplotlib.use("Agg")

OURS, OURS_TOO = "#c8442e", "#e0927f"
COLOURS = {
    "memory": "#8a8f98",
    "amemory": "#8a8f98",
    "sqlite": "#b9a06b",
    "postgres": "#336791",
    "postgres-off": "#8fb0cc",
    "apostgres": "#336791",
    "apostgres-off": "#8fb0cc",
    "apostgres-many": "#5f9e8f",
    "redis": OURS,
    "aredis": OURS,
    "redis-unix": OURS_TOO,
    "redis62": OURS_TOO,
    "aredis62": OURS_TOO,
}
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#999999",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.dpi": 110,
    "svg.fonttype": "none",
}
LATENCY_ROWS = ("memory", "sqlite", "postgres", "postgres-off", "apostgres", "redis", "aredis", "redis62")
LATENCY_WORKLOADS = {"short": "short chat (10 channels, 20 messages)", "chat": "chat of 200 messages"}
LATENCY_OPERATIONS = ("put", "put_writes", "get_tuple", "list(10)")


def plain(value: float, _: int = 0) -> str:
    """A number as one says it: 850, 1.2k, 3M."""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"


def duration(us: float) -> str:
    """Microseconds as one says them."""
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.0f} µs"


def latency(operations: dict[str, Any]) -> Figure:
    """A panel for each operation of two workloads, a bar for each saver."""
    rows = [row for row in LATENCY_ROWS if row in operations["short"]["put"]]
    figure, panels = plt.subplots(2, 4, figsize=(11.5, 5.4), sharey=True, layout="constrained")
    for (workload, title), line in zip(LATENCY_WORKLOADS.items(), panels, strict=True):
        for operation, axes in zip(LATENCY_OPERATIONS, line, strict=True):
            medians = [operations[workload][operation][row]["median"] for row in rows]
            axes.barh(range(len(rows)), medians, color=[COLOURS[row] for row in rows], height=0.72)
            for y, us in enumerate(medians):
                axes.text(us, y, f" {duration(us)}", va="center", fontsize=8)
            axes.set_xlim(0, max(medians) * 1.35)
            axes.set_title(operation)
            axes.set_xticks([])
            axes.spines["bottom"].set_visible(False)
            axes.tick_params(axis="y", length=0)
        line[0].set_ylabel(title)
    panels[0][0].set_yticks(range(len(rows)), [ROWS[row].title for row in rows])
    panels[0][0].invert_yaxis()
    figure.suptitle("Latency of one call, median; shorter is better; each panel has a scale of its own")
    return figure


def _lines(axes: Axes, series: dict[str, tuple[str, list[float], list[float]]]) -> None:
    for row, (title, xs, ys) in series.items():
        ours = row.startswith(("redis", "aredis"))
        axes.plot(
            xs,
            ys,
            marker="o",
            markersize=4,
            color=COLOURS[row],
            linewidth=2.2 if ours else 1.4,
            linestyle="--" if row.endswith(("-off", "62")) else "-",
            label=title,
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y", color="#e6e6e6")
    axes.set_axisbelow(True)


def throughput(figures: dict[str, Any]) -> Figure:
    """Operations per second over the number of tasks."""
    figure, axes = plt.subplots(figsize=(7.5, 5.2), layout="constrained")
    series = {}
    for row, entry in figures.items():
        levels = sorted(int(level) for level in entry["rates"])
        series[row] = (entry["title"], [float(n) for n in levels], [entry["rates"][str(n)] for n in levels])
    _lines(axes, dict(sorted(series.items(), key=lambda item: -item[1][2][-1])))
    axes.set_xscale("log", base=2)
    axes.set_xticks(levels, [str(level) for level in levels])
    axes.set_xlabel("concurrent runs on one event loop")
    axes.set_ylabel("operations per second (log)")
    axes.set_title("Throughput by concurrency; higher is better")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def stored(chats: dict[str, Any]) -> Figure:
    """Stored bytes as a multiple of the messages, over the turns of the chat."""
    titles = {
        "chat": "one invoke a turn:\n2 messages, 3 checkpoints",
        "agent": "one step a turn:\n1 message, 1 checkpoint",
    }
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 4), sharey=True, layout="constrained")
    for (kind, title), axes in zip(titles.items(), panels, strict=True):
        _lines(
            axes,
            {
                row: (
                    ROWS[row].title,
                    [entry["turn"] for entry in marks],
                    [entry["bytes"] / entry["messages"] for entry in marks],
                )
                for row, marks in chats[kind].items()
                if row != "redis62"
            },
        )
        axes.set_title(title)
        axes.set_xlabel("turns")
    panels[0].set_ylabel("bytes stored / bytes of the messages (log)")
    panels[0].legend(frameon=False, fontsize=8)
    figure.suptitle("Bytes stored by turn; lower is better")
    return figure


def sent(figures: dict[str, Any]) -> Figure:
    """Bytes of one put over the turns of the chat."""
    figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
    _lines(
        axes,
        {
            row: (ROWS[row].title, [mark["turn"] for mark in marks], [mark["sent"] for mark in marks])
            for row, marks in figures.items()
        },
    )
    axes.set_xlabel("turn of the chat, two messages of 650 bytes each")
    axes.set_ylabel("bytes sent per put (log)")
    axes.set_title("Bytes sent by turn; lower is better")
    axes.legend(frameon=False, fontsize=8)
    return figure


def agent(figures: dict[str, Any]) -> Figure:
    """What savers add to a step of a graph."""
    blocking = ("sqlite", "postgres", "postgres-off", "redis")
    figure, panels = plt.subplots(1, 3, figsize=(10.5, 3), sharey=True, layout="constrained")
    rows = [*blocking, "apostgres", "aredis"]
    for durability, axes in zip(("sync", "async", "exit"), panels, strict=True):
        times = figures["us_by_step"][durability]
        added = [max(0.0, times[row] - times["memory" if row in blocking else "amemory"]) for row in rows]
        axes.barh(range(len(rows)), added, color=[COLOURS[row] for row in rows], height=0.7)
        for y, us in enumerate(added):
            axes.text(us, y, f" {duration(us)}", va="center", fontsize=8)
        axes.set_xlim(0, max([*added, 1.0]) * 1.35)
        axes.set_title(f'durability="{durability}"')
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(rows)), [figures["titles"][row] for row in rows])
    panels[0].invert_yaxis()
    figure.suptitle("Time a step takes over InMemorySaver, 50-step agent; shorter is better; scales differ")
    return figure


def draw(figures: dict[str, Any], folder: Path) -> None:
    """Write all pictures."""
    made = {
        "latency": (latency, "operations"),
        "throughput": (throughput, "throughput"),
        "stored": (stored, "chats"),
        "sent": (sent, "sent"),
        "agent": (agent, "agent"),
    }
    with plt.rc_context(STYLE):  # type: ignore[arg-type]
        for name, (picture, part) in made.items():
            figure = picture(figures[part])
            figure.savefig(folder / f"{name}.png")
            plt.close(figure)
