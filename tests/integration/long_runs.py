"""Graphs that lose their server in the middle of a run."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict

from redis_ckpt import Retry
from tests.integration.graphs import Builder

PATIENT = Retry(attempts=60, cap_seconds=0.5)  # longer than a failover takes, on a busy machine too
ROUNDS = 6


class Count(TypedDict):
    log: Annotated[list[Any], operator.add]
    round: int


def counting(on_round: Callable[[int], object] = lambda _: None) -> Builder:
    """Three tasks side by side in each of six rounds; `on_round` is called in one of them."""

    def work(given: dict[str, Any]) -> Any:
        if given["n"] == 1:
            on_round(given["round"])
        return {"log": [[given["round"], given["n"]]]}

    def fan_out(state: Count) -> Any:
        return [Send("work", {"round": state["round"], "n": n}) for n in range(3)]

    builder: Any = StateGraph(Count)
    builder.add_node("begin", lambda state: {"round": state["round"] + 1})
    builder.add_node("work", work)
    builder.add_node("end", lambda state: {})
    builder.add_edge(START, "begin")
    builder.add_conditional_edges("begin", fan_out, ["work"])
    builder.add_edge("work", "end")
    builder.add_conditional_edges("end", lambda s: END if s["round"] == ROUNDS else "begin", ["begin", END])
    made: Builder = builder
    return made


WHOLE = [[round, n] for round in range(1, ROUNDS + 1) for n in range(3)]
"""The log of a run to its end."""
