"""What the savers are measured with: six kinds of threads, and the calls that LangGraph makes while one of them grows.

The messages of the chats have 650 characters of text; "bytes of the messages" always means this text and nothing of
what surrounds it.
"""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.base.id import uuid6

Saver = BaseCheckpointSaver[Any]
State = dict[str, Any]

MESSAGE_BYTES = 650
SHORT_MESSAGE_BYTES = 60
BIG_BYTES = 1_000_000
PIECE_BYTES = 1_000
WIDE_CHANNELS = 100
FAN_OUT = 100
DEEP_CHECKPOINTS = 10_000
SYLLABLES = [a + b for a in "bdfgklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "is", "on", "ut")]


@lru_cache(maxsize=8192)
def text(number: int, size: int = MESSAGE_BYTES) -> str:
    """Words of no meaning, ASCII, exactly so long, another text for each number: no easier to compress than prose."""
    dice = random.Random(number)
    if size > PIECE_BYTES:
        return "".join(text(dice.randrange(1000), PIECE_BYTES) for _ in range(size // PIECE_BYTES + 1))[:size]
    words: list[str] = []
    while len(words) * 4 < size:
        words.append("".join(dice.choices(SYLLABLES, k=dice.randint(1, 4))))
    return " ".join(words).ljust(size, ".")[:size]


@lru_cache(maxsize=8192)
def message(number: int) -> BaseMessage:
    """One message of a chat in which every question takes one tool call: human, AI with the call, tool, AI."""
    name, content, kind = str(uuid.UUID(int=random.Random(-number).getrandbits(128))), text(number), number % 4
    if kind == 0:
        return HumanMessage(content, id=name)
    if kind == 2:
        return ToolMessage(content, id=name, tool_call_id=f"call_{number - 1:024}", name="search")
    calls = [ToolCall(name="search", args={"query": text(-number, 40)}, id=f"call_{number:024}", type="tool_call")]
    return AIMessage(
        content,
        id=f"run-{name}",
        tool_calls=calls if kind == 1 else [],
        response_metadata={"model_name": "model-1", "finish_reason": "tool_calls" if kind == 1 else "stop"},
        usage_metadata={"input_tokens": 160 * number, "output_tokens": 160, "total_tokens": 160 * number + 160},
    )


@lru_cache(maxsize=1024)
def short_message(number: int) -> BaseMessage:
    """One message of small talk: human and AI in turn, text and nothing else."""
    kind = AIMessage if number % 2 else HumanMessage
    return kind(text(number, SHORT_MESSAGE_BYTES), id=str(uuid.UUID(int=random.Random(-number).getrandbits(128))))


@dataclass(frozen=True)
class Workload:
    """How a thread begins, and what one more step changes."""

    name: str
    title: str
    begin: Callable[[int], State]
    """The state of the thread when it is `size` steps old."""
    step: Callable[[int], State]
    """What step number n gives the channels; a list is appended to a channel that holds a list."""
    size: int = 20
    """Steps before the point that is to be measured."""
    rounds: int = 20
    """Measured calls on one thread, around that point."""
    tasks: int = 1
    """Tasks of a step; each puts its writes."""


def _chat(message_of: Callable[[int], BaseMessage], step: int) -> State:
    return {"messages": [message_of(n) for n in range(step)]}


def _texts(count: int) -> State:
    return {f"channel-{n:02}": f"the first value of channel {n}" for n in range(count)}


def _wide_value(channel: int, step: int) -> Any:
    """A text, a number, a mapping or a list."""
    kinds: list[Any] = [text(channel + step, 60), step * channel, {"step": step, "note": text(channel, 30)}, [step] * 8]
    return kinds[channel % len(kinds)]


WORKLOADS = {
    w.name: w
    for w in (
        Workload(
            "short",
            "short chat: 10 channels, 20 short messages",
            lambda n: _texts(9) | _chat(short_message, n),
            lambda n: {"messages": [short_message(n)], "channel-00": text(n, 30)},
        ),
        Workload(
            "chat",
            "chat: 200 messages of 650 bytes",
            lambda n: _texts(3) | _chat(message, n),
            lambda n: {"messages": [message(n)]},
            size=200,
        ),
        Workload(
            "wide",
            "wide state: 100 channels, 10 change",
            lambda n: {f"channel-{c:03}": _wide_value(c, n) for c in range(WIDE_CHANNELS)},
            lambda n: {f"channel-{c:03}": _wide_value(c, n) for c in range(n % 10, WIDE_CHANNELS, 10)},
        ),
        Workload(
            "big",
            "big values: 1 MB, another text each step",
            lambda n: _texts(3) | {"document": text(n, BIG_BYTES)},
            lambda n: {"document": text(n % 8, BIG_BYTES)},
            rounds=6,
        ),
        Workload(
            "fanout",
            "fan-out: 100 tasks a step",
            lambda n: _texts(3) | {"results": []},
            lambda n: {"results": [{"task": k, "found": text(n + k, 200)} for k in range(FAN_OUT)]},
            rounds=10,
            tasks=FAN_OUT,
        ),
        Workload(
            "deep",
            "deep history: 10,000 checkpoints",
            lambda n: _texts(9) | _chat(short_message, 20),
            lambda n: {"channel-00": text(n % 997, 30)},
        ),
    )
}


class Put(NamedTuple):
    """The arguments of `put`."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    new_versions: dict[str, Any]


class Writes(NamedTuple):
    """The arguments of `put_writes`."""

    config: RunnableConfig
    writes: list[tuple[str, Any]]
    task_id: str
    task_path: str


class Thread:
    """One thread of a workload: makes the arguments of the next call, ahead of the clock.

    It needs the saver for the versions alone, so several savers over one store may take turns on it.
    """

    _names = itertools.count()

    def __init__(self, workload: Workload, saver: Saver, step: int, thread_id: str | None = None) -> None:
        self.workload, self._saver, self.number = workload, saver, step
        self.thread_id = thread_id or f"{workload.name}-{next(self._names)}-{uuid.uuid4().hex[:8]}"
        self._state: State = {}
        self._versions: dict[str, Any] = {}
        self._newest: Any = None
        self._parent: str | None = None
        self._changes: State = workload.begin(step)

    @property
    def config(self) -> RunnableConfig:
        """The thread, without a checkpoint: the newest is meant."""
        return {"configurable": {"thread_id": self.thread_id, "checkpoint_ns": ""}}

    @property
    def head(self) -> RunnableConfig:
        """The newest checkpoint."""
        named = {"checkpoint_id": self._parent} if self._parent else {}
        return {"configurable": {"thread_id": self.thread_id, "checkpoint_ns": "", **named}}

    def next_put(self) -> Put:
        """The checkpoint of the next step, whose parent is the newest."""
        for channel, value in self._changes.items():
            grows = isinstance(value, list) and channel in self._state
            self._state[channel] = [*self._state[channel], *value] if grows else value
        self._newest = self._saver.get_next_version(self._newest, None)
        new = dict.fromkeys(self._changes, self._newest)
        self._versions.update(new)
        config, self._parent = self.head, str(uuid6(clock_seq=self.number & 0x3FFF))
        checkpoint: Checkpoint = {
            "v": 4,
            "id": self._parent,
            "ts": datetime.now(timezone.utc).isoformat(),
            "channel_values": dict(self._state),
            "channel_versions": dict(self._versions),
            "versions_seen": {"__input__": {}, "model": dict(new), "tools": dict(new)},
            "updated_channels": sorted(new),
        }
        metadata: CheckpointMetadata = {"source": "loop", "step": self.number, "parents": {}}
        self.number += 1
        self._changes = self.workload.step(self.number)
        return Put(config, checkpoint, metadata, new)

    def next_writes(self) -> list[Writes]:
        """The writes of the tasks that run now: what the next checkpoint will contain, and a branch."""
        tasks = self.workload.tasks
        path = "~__pregel_pull, model" if tasks == 1 else "~__pregel_push, 000"
        return [
            Writes(
                self.head,
                [
                    *((channel, _share(value, k, tasks)) for channel, value in self._changes.items()),
                    ("branch:to:x", None),
                ],
                str(uuid.uuid4()),
                path,
            )
            for k in range(tasks)
        ]


def _share(value: Any, task: int, tasks: int) -> Any:
    return [value[task]] if tasks > 1 and isinstance(value, list) else value
