"""The graph of the campaigns: its checkpoints can be judged by themselves, as a thread's content follows from its id.

A turn has three rounds; in each there are three tasks side by side, a subgraph that is called anew, and a message:

    log       what the tasks and the subgraph say: the same sequence in every run of a thread
    tally     how many there are, a channel of its own
    total     the sum of their checksums, another one
    messages  one more after each round
    stable    a longer list that a few rounds share
"""

from __future__ import annotations

import operator
import random
import time
import zlib
from collections.abc import Callable
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.pregel import Pregel
from langgraph.types import Send
from typing_extensions import TypedDict

App = Pregel[Any, Any, Any, Any]
Started = Callable[[str, str], object]
"""Is told the thread and the id of each task that starts."""

ROUNDS = 3  # of a turn
SIDE_BY_SIDE = 3
INNER = ("x", "y")
PER_ROUND = SIDE_BY_SIDE + len(INNER)
SHARED_BY = 2  # rounds that have the same `stable`
LONGEST_TASK_SECONDS = 0.004


class State(TypedDict):
    turn: int
    round: int
    log: Annotated[list[str], operator.add]
    tally: Annotated[int, operator.add]
    total: Annotated[int, operator.add]
    messages: Annotated[list[AnyMessage], add_messages]
    stable: list[str]


class Inner(TypedDict):
    round: int
    log: Annotated[list[str], operator.add]
    tally: Annotated[int, operator.add]
    total: Annotated[int, operator.add]


def _said(*items: str) -> Any:
    return {"log": list(items), "tally": len(items), "total": sum(zlib.crc32(i.encode()) for i in items)}


def item(thread_id: str, round: int, n: int | str) -> str:
    return f"{thread_id} {round} {n}"


def sequence(thread_id: str, rounds: int) -> list[str]:
    """The log after so many rounds."""
    return [item(thread_id, r, n) for r in range(1, rounds + 1) for n in (*range(SIDE_BY_SIDE), *INNER)]


def stable(thread_id: str, round: int) -> list[str]:
    return [f"{thread_id} {round // SHARED_BY} {n}" for n in range(40)]


def message(thread_id: str, round: int) -> str:
    return f"{thread_id} {round} " + "words that fill a message " * 10


def graph(saver: BaseCheckpointSaver[Any], started: Started, longest_task: float = LONGEST_TASK_SECONDS) -> App:
    """The graph; each task sleeps for a random part of `longest_task` seconds."""

    def begin_task(config: RunnableConfig) -> str:
        thread_id: str = config["configurable"]["thread_id"]
        started(thread_id, config["metadata"]["langgraph_checkpoint_ns"].rpartition(":")[2])
        if longest_task:
            time.sleep(random.uniform(0, longest_task))
        return thread_id

    def begin(state: State, config: RunnableConfig) -> Any:
        round = state.get("round", 0) + 1
        thread_id = begin_task(config)
        fresh = round == 1 or round % SHARED_BY == 0
        return {"round": round} | ({"stable": stable(thread_id, round)} if fresh else {})

    def work(given: dict[str, int], config: RunnableConfig) -> Any:
        return _said(item(begin_task(config), given["round"], given["n"]))

    def end(state: State, config: RunnableConfig) -> Any:
        thread_id, round = begin_task(config), state["round"]
        return {"messages": [AIMessage(message(thread_id, round), id=f"m{round}")]}

    outer: Any = StateGraph(State)
    outer.add_node("begin", begin)
    outer.add_node("work", work)
    outer.add_node("inner", _calling(_inner(begin_task)))
    outer.add_node("end", end)
    outer.add_edge(START, "begin")
    outer.add_conditional_edges(
        "begin", lambda s: [Send("work", {"round": s["round"], "n": n}) for n in range(SIDE_BY_SIDE)], ["work"]
    )
    outer.add_edge("work", "inner")
    outer.add_edge("inner", "end")
    outer.add_conditional_edges("end", lambda s: END if _is_over(s) else "begin", ["begin", END])
    app: App = outer.compile(checkpointer=saver)
    return app


def _inner(begin_task: Callable[[RunnableConfig], str]) -> App:
    builder: Any = StateGraph(Inner)

    def step(name: str) -> Any:
        def run(state: Inner, config: RunnableConfig) -> Any:
            return _said(item(begin_task(config), state["round"], name))

        return run

    builder.add_sequence([(name, step(name)) for name in INNER])
    builder.add_edge(START, INNER[0])
    app: App = builder.compile()
    return app


def _calling(called: App) -> RunnableLambda[Any, Any]:
    """A node that calls a graph, in the colour that it is called in itself."""

    def given(state: State) -> Any:
        return {"round": state["round"]} | _said()

    def call(state: State, config: RunnableConfig) -> Any:
        return _said(*called.invoke(given(state), config)["log"])

    async def acall(state: State, config: RunnableConfig) -> Any:
        return _said(*(await called.ainvoke(given(state), config))["log"])

    return RunnableLambda(call, acall)


def _is_over(values: Any) -> bool:
    messages: list[AnyMessage] = values.get("messages", [])
    return len(messages) == int(values["turn"]) * ROUNDS


def next_input(found: CheckpointTuple | None) -> Any:
    """What a thread is to be invoked with: None where a run goes on, else the input of the next turn."""
    if found is None:
        return {"turn": 1, "round": 0} | _said()
    values = found.checkpoint["channel_values"]
    if found.metadata["source"] == "input" or not _is_over(values):
        return None
    return {"turn": values["turn"] + 1} | _said()


def turns(found: CheckpointTuple | None) -> int:
    """How many turns are over."""
    return 0 if found is None else len(found.checkpoint["channel_values"].get("messages", ())) // ROUNDS


def fault(found: CheckpointTuple) -> str | None:
    """What is wrong with a checkpoint, or None: its channels must agree, and be those of its thread."""
    at, values = found.config["configurable"], found.checkpoint["channel_values"]
    if lacking := [name for name in found.checkpoint["channel_versions"] if name in KEPT and name not in values]:
        return f"there are no values of {lacking}"
    if found.metadata["source"] == "input" and "round" not in values:
        return None  # nothing but its input is there
    thread_id, log = at["thread_id"], values.get("log", [])
    told = _said(*log)
    if any(values.get(name, 0) != told[name] for name in ("tally", "total")):
        return f"tally {values.get('tally')}, total {values.get('total')} and the log {log!r} do not agree"
    if at["checkpoint_ns"]:
        expected = [item(thread_id, values["round"], name) for name in INNER][: len(log)]
        return None if log == expected else f"the log of a subgraph is {log!r}, not {expected!r}"
    return _fault_of_root(thread_id, values, log)


KEPT = {"turn", "round", "log", "tally", "total", "messages", "stable"}


def _fault_of_root(thread_id: str, values: Any, log: list[str]) -> str | None:
    round = values["round"]
    if log != sequence(thread_id, round)[: len(log)]:
        return f"the log after round {round} is {log!r}"
    whole = (round - 1) * PER_ROUND
    if len(log) not in ({0} if round == 0 else {whole, whole + SIDE_BY_SIDE, whole + PER_ROUND}):
        return f"the log of round {round} has {len(log)} items"
    said = [m.content for m in values.get("messages", [])]
    if said != [message(thread_id, r) for r in range(1, len(said) + 1)] or len(said) not in (round, round - 1):
        return f"the messages after round {round} are {said!r}"
    if len(said) == round and len(log) != round * PER_ROUND:
        return f"round {round} has its message, but {len(log)} items"
    if round and values["stable"] != stable(thread_id, round):
        return f"the values of round {round} do not fit: stable begins with {values['stable'][:1]!r}"
    return None
