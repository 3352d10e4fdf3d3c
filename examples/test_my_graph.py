"""Unit tests of your own graph: on fakeredis, without a server.

    python examples/test_my_graph.py        or, in a project of yours,        pytest test_my_graph.py

fakeredis runs the saver's Lua scripts, so what is tested here is what will happen on Redis
(pip install pytest 'fakeredis[lua]').
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import fakeredis
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from redis_ckpt import RedisSaver

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


# The graph under test: in your project it is imported.
class Post(TypedDict, total=False):
    draft: str
    published: str


class Author:
    def __init__(self) -> None:
        self.drafts_written = 0
        self.printer_works = True

    def write(self, state: Post) -> Post:
        self.drafts_written += 1
        return {"draft": "Redis remembers."}

    def publish(self, state: Post) -> Post:
        final = interrupt({"review": state["draft"]})
        if not self.printer_works:
            raise ConnectionError("no paper")
        return {"published": final}


def build(author: Author, saver: RedisSaver) -> Any:
    builder = StateGraph(Post).add_node("write", author.write).add_node("publish", author.publish)
    return builder.add_edge(START, "write").add_edge("write", "publish").compile(checkpointer=saver)


@pytest.fixture
def redis() -> fakeredis.FakeRedis:
    return fakeredis.FakeRedis()  # every test begins with an empty one


def test_it_asks_for_a_review_and_publishes_what_comes_back(redis: fakeredis.FakeRedis) -> None:
    graph = build(Author(), RedisSaver(redis_client=redis))
    (question,) = graph.invoke({}, CONFIG)["__interrupt__"]
    assert question.value == {"review": "Redis remembers."}
    assert graph.invoke(Command(resume="Redis remembers all."), CONFIG)["published"] == "Redis remembers all."


def test_another_process_can_answer(redis: fakeredis.FakeRedis) -> None:
    author = Author()
    build(author, RedisSaver(redis_client=redis)).invoke({}, CONFIG)
    later = build(author, RedisSaver(redis_client=redis))  # all it shares with the first is Redis
    assert later.invoke(Command(resume="ok"), CONFIG)["published"] == "ok"


def test_after_a_failure_the_draft_is_not_written_again(redis: fakeredis.FakeRedis) -> None:
    author = Author()
    graph = build(author, RedisSaver(redis_client=redis))
    graph.invoke({}, CONFIG)
    author.printer_works = False
    with pytest.raises(ConnectionError):
        graph.invoke(Command(resume="ok"), CONFIG)
    author.printer_works = True
    assert graph.invoke(None, CONFIG)["published"] == "ok"
    assert author.drafts_written == 1


if __name__ == "__main__":
    # with the configuration of no project
    options = f"-q -c {os.devnull} -p no:asyncio -p no:cacheprovider".split()
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", __file__, *options]))
