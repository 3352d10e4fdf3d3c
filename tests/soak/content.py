"""What the checkpoints of the soak hold: each one can be judged by itself, whoever wrote it and whatever is gone.

    n        text, new with each step
    stable   a longer list, new with every few steps: many checkpoints share its blob
    log      a delta channel: tasks write to it, every few writes a snapshot is stored
    digest   made of the other three

Real graphs have `plain` instead: a list that every node extends by what it writes to `log`. A task writes all of its
channels at once, so either all of them are there or none. The metadata of a child that only one process could write
say how many writes its parent had (`asked`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from redis_ckpt import CheckpointerError
from redis_ckpt._keys import thread_keys
from tests.savers import Facade

LOG = "log"
MOST_ITEMS = 40  # of a log: what is older leaves it
SNAPSHOT_EVERY = 4  # writes to a log
LATE = "late"  # the task that writes to checkpoints of long ago
TASK_CHANNELS = {"x": 1, "y": 1}

DEADLINES_APART_MS = 5
TIMES_LEFT = "local r = {} for _, k in ipairs(KEYS) do r[#r + 1] = redis.call('PTTL', k) end return r"
ABSENT = -2

Pending = list[tuple[str, str, Any]]


class BrokenError(AssertionError):
    """A promise was not kept; the text says where."""


class State(NamedTuple):
    """What one checkpoint holds, its log rebuilt, with the writes that wait there."""

    id: str
    n: str
    stable: list[str]
    log: list[str]
    versions: dict[str, Any]
    counters: tuple[int, int]  # since the last snapshot: steps that wrote to the log, all steps
    pending: Pending

    @property
    def asked(self) -> Pending:
        return [write for write in self.pending if write[0] != LATE]

    @property
    def waiting(self) -> list[str]:
        """What the waiting writes will add to the log."""
        return [item for _, channel, items in self.pending if channel == LOG for item in items]


EMPTY = State("", "", [], [], {}, (0, 0), [])


def extended(log: list[str], items: list[str]) -> list[str]:
    return [*log, *items][-MOST_ITEMS:]


def digest(n: str, stable: list[str], log: list[str]) -> str:
    return hashlib.sha256(json.dumps([n, stable, log]).encode()).hexdigest()


def place(found: CheckpointTuple | RunnableConfig) -> str:
    """Thread, namespace and id, for the report."""
    config = found.config if isinstance(found, CheckpointTuple) else found
    at = config["configurable"]
    return f"thread {at['thread_id']!r} namespace {at['checkpoint_ns']!r} checkpoint {at.get('checkpoint_id')!r}"


def rebuilt(saver: Facade, found: CheckpointTuple) -> list[str]:
    """The log of a checkpoint, as LangGraph rebuilds it."""
    stored, versions = found.checkpoint["channel_values"], found.checkpoint["channel_versions"]
    if LOG not in stored and LOG not in versions:
        return []
    if LOG in stored:
        return plain(stored[LOG])
    history = saver.get_delta_channel_history(config=found.config, channels=[LOG])[LOG]
    items = [item for _, _, write in history["writes"] for item in write]
    log = plain(history["seed"]) + items if "seed" in history else items
    return log if "plain" in stored else log[-MOST_ITEMS:]


def plain(value: Any) -> list[str]:
    return list(value.value if isinstance(value, _DeltaSnapshot) else value)


def state_of(saver: Facade, found: CheckpointTuple) -> State:
    """What a hand-made checkpoint holds."""
    stored: dict[str, Any] = found.checkpoint["channel_values"]
    metadata: Any = found.metadata
    updates, steps = (metadata.get("counters_since_delta_snapshot") or {}).get(LOG, (0, 0))
    return State(
        found.checkpoint["id"],
        stored["n"],
        stored["stable"],
        rebuilt(saver, found),
        dict(found.checkpoint["channel_versions"]),
        (updates, steps),
        list(found.pending_writes or []),
    )


def fault(saver: Facade, found: CheckpointTuple) -> str | None:
    """What is wrong with a checkpoint, or None."""
    stored = found.checkpoint["channel_values"]
    missing = {"n", "stable", "digest"} - stored.keys()
    try:
        log = rebuilt(saver, found)
    except CheckpointerError as error:  # damaged, or removed since it was read: whoever asks knows which may be
        return str(error)
    if len(missing) == 3:  # a real graph's
        expected = stored.get("plain", [])
        return None if log == expected else f"the log is {log!r}, not {expected!r}"
    if missing:
        return f"there are no values of {sorted(missing)}"
    if digest(stored["n"], stored["stable"], log) != stored["digest"]:
        return f"the values do not fit together: n {stored['n']!r}, stable {stored['stable'][:1]!r}, log {log!r}"
    return _fault_in_writes(found)


def _fault_in_writes(found: CheckpointTuple) -> str | None:
    tasks: dict[str, Counter[str]] = {}
    for task, channel, value in found.pending_writes or []:
        tasks.setdefault(task, Counter())[channel] += 1
        if channel in TASK_CHANNELS and value != task:
            return f"the task {task!r} has the write {value!r} to {channel!r}"
    torn = {t: dict(c) for t, c in tasks.items() if t != LATE and not TASK_CHANNELS.items() <= c.items()}
    return f"tasks are there in part: {torn!r}" if torn else None


def check(saver: Facade, found: CheckpointTuple, *, may_go: bool = False) -> bool:
    """Whether a checkpoint is still there and whole.

    Raises:
        BrokenError: It is not whole. With `may_go` it may have been removed since it was read.
    """
    wrong = fault(saver, found)
    if wrong is None:
        return True
    if may_go and saver.get_tuple(found.config) is None:
        return False
    raise BrokenError(f"{place(found)}: {wrong}")


def times_left(raw: Any, thread_id: str) -> list[int]:
    """The ms that the keys of a thread still live, -1 for ever; nothing if it is gone.

    Raises:
        BrokenError: They do not end together.
    """
    keys = thread_keys(b"ckpt", thread_id)
    left = [ms for ms in raw.eval(TIMES_LEFT, len(keys), *keys) if ms != ABSENT]
    if left and max(left) - min(left) > DEADLINES_APART_MS:
        raise BrokenError(f"thread {thread_id!r}: its keys live {left} ms")
    return left
