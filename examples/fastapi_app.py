"""A chat service: FastAPI with AsyncRedisSaver.

    python examples/fastapi_app.py                asks itself a few things and prints the answers
    uvicorn fastapi_app:app --app-dir examples    serves

It needs fastapi, httpx and uvicorn (pip install 'redis-ckpt[examples]'). The state is in the Redis that REDIS_URL
names, else in a Valkey of its own. A message that is sent twice at once begins two runs on one thread, of which one
would be lost to the other's history: with on_conflict="raise" the second is told, by a 409.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI, HTTPException, Request
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

from redis_ckpt import AsyncRedisSaver, ConflictError


async def reply(state: MessagesState) -> dict[str, list[AIMessage]]:
    """Stands for a model. With a real one: `[await model.ainvoke(state["messages"])]`."""
    turn = sum(isinstance(m, HumanMessage) for m in state["messages"])
    return {"messages": [AIMessage(f"({turn}) You said: {state['messages'][-1].content}")]}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One saver for the whole application: it is made for many concurrent runs."""
    url = os.environ.get("REDIS_URL", "embedded://")
    async with AsyncRedisSaver.from_conn_string(url, on_conflict="raise") as saver:
        builder = StateGraph(MessagesState).add_node("reply", reply).add_edge(START, "reply")
        app.state.graph, app.state.saver = builder.compile(checkpointer=saver), saver
        yield


app = FastAPI(lifespan=lifespan)


class Said(BaseModel):
    text: str


@app.post("/threads/{thread_id}/messages")
async def send(thread_id: str, said: Said, request: Request) -> dict[str, Any]:
    given = {"messages": [HumanMessage(said.text)]}
    try:  # "sync": the input is stored, or refused, before the model is asked
        state = await request.app.state.graph.ainvoke(
            given, {"configurable": {"thread_id": thread_id}}, durability="sync"
        )
    except ConflictError:
        raise HTTPException(409, "another message of this conversation is being answered") from None
    return {"answer": state["messages"][-1].content}


@app.get("/threads/{thread_id}/messages")
async def history(thread_id: str, request: Request) -> list[dict[str, str]]:
    state = await request.app.state.graph.aget_state({"configurable": {"thread_id": thread_id}})
    if not state.values:
        raise HTTPException(404, "no such thread")
    return [{"from": m.type, "text": str(m.content)} for m in state.values["messages"]]


@app.delete("/threads/{thread_id}", status_code=204)
async def forget(thread_id: str, request: Request) -> None:
    await request.app.state.saver.adelete_thread(thread_id)


async def main() -> None:
    """Drive the application without a network: two conversations at once, a look at one, a message sent twice."""
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app")
    async with lifespan(app), client:
        for text in ("Hello", "How are you?"):
            urls = [f"/threads/example-{name}/messages" for name in ("ada", "bob")]
            for answer in await asyncio.gather(*(client.post(url, json={"text": text}) for url in urls)):
                print(answer.json()["answer"])
        for message in (await client.get(urls[0])).json():
            print(f"{message['from']:>6}: {message['text']}")
        twice = await asyncio.gather(*(client.post(urls[0], json={"text": "Pay!"}) for _ in range(2)))
        print("sent twice at once:", *sorted(response.status_code for response in twice))
        for url in urls:
            await client.delete(url.removesuffix("/messages"))
        print("after the deletion:", (await client.get(urls[0])).status_code)


if __name__ == "__main__":
    asyncio.run(main())
