"""What a saver adds to each step of a real graph: an agent of 50 steps, under the three durability modes.

    python -m bench.agent

Model and tool nodes in turn, one message of 650 bytes a step, nothing computed. The figure is the time of a whole run,
less that of the same run on InMemorySaver, by step. The savers take turns; medians. A saver that works beside the graph
(durability "async") can come out near nothing.
"""

from __future__ import annotations

import gc
import operator
import statistics
import uuid
from contextlib import ExitStack
from time import perf_counter
from typing import Annotated, Any, Literal, TypedDict

from langchain_core.messages import AnyMessage
from langgraph.graph import END, START, StateGraph

from bench.drivers import Awaiting, Driver
from bench.results import QUICK, rounded, save
from bench.savers import AMEMORY, PRESENT, Row, Servers
from bench.workloads import message

STEPS = 50
TURNS = 3 if QUICK else 10
ROWS = (
    PRESENT["memory"],
    PRESENT["sqlite"],
    PRESENT["postgres"],
    PRESENT["postgres-off"],
    PRESENT["redis"],
    Row("amemory", "InMemorySaver, ainvoke", "memory", AMEMORY.opener, True),
    PRESENT["apostgres"],
    PRESENT["aredis"],
)

Durability = Literal["sync", "async", "exit"]
DURABILITIES: tuple[Durability, ...] = ("sync", "async", "exit")


class State(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]


def built(driver: Driver) -> Any:
    """The graph on this saver."""

    def say(state: State) -> dict[str, Any]:
        return {"messages": [message(len(state["messages"]))]}

    async def asay(state: State) -> dict[str, Any]:
        return say(state)

    graph = StateGraph(State)
    node: Any = asay if driver.is_async else say
    graph.add_node("model", node)
    graph.add_node("tools", node)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if len(state["messages"]) <= STEPS else END)
    graph.add_conditional_edges("tools", lambda state: "model" if len(state["messages"]) <= STEPS else END)
    return graph.compile(driver.saver)


def run(driver: Driver, app: Any, durability: Durability) -> float:
    """Seconds of one run on a new thread."""
    config = {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": 2 * STEPS}
    given = {"messages": [message(0)]}
    gc.collect()
    before = perf_counter()
    if isinstance(driver, Awaiting):
        driver.loop.run_until_complete(app.ainvoke(given, config, durability=durability))
    else:
        app.invoke(given, config, durability=durability)
    return perf_counter() - before


def main() -> None:
    """Measure every saver under every mode."""
    gc.freeze()
    taken: dict[str, dict[str, list[float]]] = {d: {row.name: [] for row in ROWS} for d in DURABILITIES}
    with Servers() as servers, ExitStack() as stack:
        drivers = {row.name: stack.enter_context(row.open(servers)) for row in ROWS}
        apps = {name: built(driver) for name, driver in drivers.items()}
        for turn in range(TURNS + 1):
            for durability in DURABILITIES:
                for name, driver in drivers.items():
                    seconds = run(driver, apps[name], durability)
                    if turn:  # the first turn warms up
                        taken[durability][name].append(seconds / STEPS * 1e6)
    titles = {row.name: row.title for row in ROWS}
    medians = {d: {name: rounded(statistics.median(xs)) for name, xs in by.items()} for d, by in taken.items()}
    save("agent", {"titles": titles, "us_by_step": medians})


if __name__ == "__main__":
    main()
