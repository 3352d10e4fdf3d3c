"""One worker process of the demo: `worker.py URL THREAD JOURNAL start|resume|approve`.

It stands ready until a byte arrives on its standard input, then does its step. On standard output it
says, one JSON object a line, what it waits for and what each call of the checkpointer took. A line about
a call is written when the server has answered: what is said to be stored is stored.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.types import Command

from redis_ckpt import RedisSaver
from redis_ckpt.demo.agent import REQUEST, SLOW, Desk, build

_output = threading.Lock()  # LangGraph calls the saver from several threads


def say(event: str, **facts: object) -> None:
    """One line to the parent, whole and at once."""
    with _output:
        sys.stdout.write(json.dumps({"event": event, "pid": os.getpid(), **facts}) + "\n")
        sys.stdout.flush()


class TimedSaver(RedisSaver):
    """A RedisSaver that says what each call took, in milliseconds on this process's clock."""

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, and say so."""
        begin = time.perf_counter()
        stored = super().put(config, checkpoint, metadata, new_versions)
        say("put", checkpoint=checkpoint["id"], ms=_ms_since(begin))
        return stored

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what one task wrote, and say so."""
        begin = time.perf_counter()
        super().put_writes(config, writes, task_id, task_path)
        checkpoint = config["configurable"]["checkpoint_id"]
        say("put_writes", checkpoint=checkpoint, task=task_id, ms=_ms_since(begin))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read a checkpoint, and say so."""
        begin = time.perf_counter()
        found = super().get_tuple(config)
        say("get_tuple", ms=_ms_since(begin))
        return found


def _ms_since(begin: float) -> float:
    return (time.perf_counter() - begin) * 1000


def wait_for_slow(supplier: str) -> None:
    """Wait for a slow supplier: for an answer that never comes, since the parent kills us first."""
    if supplier in SLOW:
        say("waiting", supplier=supplier)
        ready()


def ready() -> bool:
    """Wait for a byte from the parent; False if it is gone, so that it leaves no worker behind."""
    return bool(os.read(0, 1))


def at_once(supplier: str) -> None:
    """No supplier keeps the later workers waiting."""


def main(url: str, thread_id: str, journal: str, step: str) -> None:
    """Run one step of the story and say how it ended."""
    with TimedSaver(url) as saver:
        saver.setup()  # optional: the first call would load the scripts, and look slower than the rest
        graph = build(Desk(Path(journal), wait_for_slow if step == "start" else at_once), saver)
        orders: dict[str, Any] = {
            "start": {"messages": [("user", REQUEST)]},
            "resume": None,
            "approve": Command(resume="yes"),
        }
        config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
        # "sync": a step begins when the one before is stored; nothing that a crash takes is reported
        state = graph.invoke(orders[step], config, durability="sync")
    questions = [question.value for question in state.get("__interrupt__", ())]
    say("end", questions=questions, answer=str(state["messages"][-1].content))


if __name__ == "__main__" and ready():
    main(*sys.argv[1:])
