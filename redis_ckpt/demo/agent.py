"""The agent of the demo: a purchase desk.

    model -> find_suppliers -> model -> 6 x get_quote, in parallel -> model -> purchase -> model

The model calls tools in a loop. Six quotes are one superstep: one `Send` each. `purchase` is a subgraph
with a namespace of its own: it waits for a person (`interrupt`), then places the order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Send, interrupt

PRICES = {"Alder": 149, "Birch": 141, "Cedar": 155, "Dogwood": 138, "Elm": 129, "Fir": 144}
"""What each supplier asks for one chair, in euros."""

SLOW = ("Elm", "Fir")
"""Suppliers that have not answered yet when the first worker is killed; the cheapest is one of them."""

PIECES = 24
REQUEST = f"{PIECES} office chairs, please. Ask every supplier, show me the best offer before you order."


class Desk:
    """The world outside of the graph. It remembers in a file what was really done, and how often."""

    def __init__(self, journal: Path, wait_for: Callable[[str], None]) -> None:
        self._journal = journal
        self.wait_for = wait_for

    def note(self, task: str) -> None:
        """Append one execution. It is on the disk before the task goes on, whatever happens then."""
        line = json.dumps({"task": task, "pid": os.getpid()}) + "\n"
        fd = os.open(self._journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line.encode())
            os.fsync(fd)
        finally:
            os.close(fd)


class DeskModel(BaseChatModel):
    """A chat model without a network: what it says follows from the messages so far, and nothing else."""

    @property
    def _llm_type(self) -> str:
        return "purchase-desk"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=_decide(messages))])


def _decide(messages: Sequence[BaseMessage]) -> AIMessage:
    results = [m for m in messages if isinstance(m, ToolMessage)]
    if not results:
        return AIMessage("Who sells them?", tool_calls=[_call("find_suppliers", "", item="chair")])
    latest = results[-1]
    if latest.name == "find_suppliers":
        names = str(latest.content).split(", ")
        return AIMessage("I ask all of them.", tool_calls=[_call("get_quote", n, supplier=n) for n in names])
    if latest.name == "get_quote":
        quotes = [json.loads(str(m.content)) for m in results if m.name == "get_quote"]
        best = min(quotes, key=lambda q: int(q["price"]))
        return AIMessage("This is the best.", tool_calls=[_call("place_order", best["supplier"], **best)])
    return AIMessage(str(latest.content))


def _call(name: str, about: str, **args: object) -> ToolCall:
    return ToolCall(name=name, args=args, id=f"{name} {about}".strip(), type="tool_call")


def _tools(desk: Desk) -> dict[str, BaseTool]:
    @tool
    def find_suppliers(item: str) -> str:
        """Names of those who sell an item."""
        desk.note("find_suppliers")
        return ", ".join(PRICES)

    @tool
    def get_quote(supplier: str) -> dict[str, Any]:
        """What a supplier asks for one piece, in euros."""
        desk.note(f"get_quote {supplier}")
        desk.wait_for(supplier)
        return {"supplier": supplier, "price": PRICES[supplier]}

    @tool
    def place_order(supplier: str, price: int) -> str:
        """Order from a supplier. This costs money: it must not happen twice."""
        desk.note("place_order")
        return f"{PIECES} chairs ordered from {supplier} for {PIECES * price} EUR."

    return {t.name: t for t in (find_suppliers, get_quote, place_order)}


def _wanted(state: MessagesState) -> list[ToolCall]:
    return cast(AIMessage, state["messages"][-1]).tool_calls


def _purchase(tools: dict[str, BaseTool]) -> CompiledStateGraph[Any, Any, Any, Any]:
    def approve(state: MessagesState) -> Command[Literal["order", "__end__"]]:
        (call,) = _wanted(state)
        offer = call["args"]
        question = f"Order {PIECES} chairs from {offer['supplier']} for {PIECES * offer['price']} EUR?"
        if interrupt(question) == "yes":
            return Command(goto="order")
        refusal = ToolMessage("Not ordered.", name=call["name"], tool_call_id=call["id"])
        return Command(goto="__end__", update={"messages": [refusal]})

    def order(state: MessagesState) -> dict[str, Any]:
        (call,) = _wanted(state)
        return {"messages": [tools[call["name"]].invoke(call)]}

    return (
        StateGraph(MessagesState)
        .add_node("approve", approve)
        .add_node("order", order)
        .add_edge(START, "approve")
        .compile()
    )


def build(desk: Desk, checkpointer: BaseCheckpointSaver[Any]) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The whole agent, compiled on a checkpointer."""
    model, tools = DeskModel(), _tools(desk)

    def ask(state: MessagesState) -> dict[str, Any]:
        desk.note("model")
        return {"messages": [model.invoke(state["messages"])]}

    def use_tool(state: ToolCall) -> dict[str, Any]:
        return {"messages": [tools[state["name"]].invoke(state)]}

    def route(state: MessagesState) -> str | list[Send]:
        calls = _wanted(state)
        if not calls:
            return END
        return "purchase" if calls[0]["name"] == "place_order" else [Send("tool", c) for c in calls]

    return (
        StateGraph(MessagesState)
        .add_node("model", ask)
        .add_node("tool", use_tool)
        .add_node("purchase", _purchase(tools))
        .add_edge(START, "model")
        .add_conditional_edges("model", route, ["tool", "purchase", END])
        .add_edge("tool", "model")
        .add_edge("purchase", "model")
        .compile(checkpointer=checkpointer)
    )
