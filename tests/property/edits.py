"""Random lives of a few values: what agents do to their lists, documents and texts, by several workers in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import pytest
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Interrupt

from redis_ckpt import _delta
from redis_ckpt._ops import blobs

CHANNELS = ("messages", "doc", "text", "b:c")
WORKERS = ("one", "two", "without", "tiny", "few")
STEPS = (1, 4, 16, 64)
KEPT = 2  # by the worker that keeps few checkpoints
Kind: TypeAlias = Literal["ours", "text", "by hand"]
KINDS: tuple[Kind, ...] = ("ours", "ours", "ours", "text", "by hand")
"""Versions that the saver gives; those of LangGraph's own savers; and 1, 2, 3, which repeat after a fork."""

LIST_OPS = ("append", "append", "append", "extend", "edit", "remove", "front", "window", "put in", "cut", "reverse")
OPS = (*LIST_OPS, "append", "append", "inside", "clear", "retype", "empty", "same")

Edit: TypeAlias = tuple[str, str, int]
"""A channel, what is done to it, and a number that says where and with what."""

edits: st.SearchStrategy[Edit] = st.tuples(
    st.sampled_from((*CHANNELS, CHANNELS[0])), st.sampled_from(OPS), st.integers(0, 999)
)
workers = st.sampled_from(WORKERS)
threads = st.integers(0, 2)


@dataclass(frozen=True)
class Steps:
    """Supersteps: a worker goes on from a checkpoint (0 is the newest, then back), perhaps with another in turn."""

    thread: int
    parent: int
    workers: tuple[str, ...]
    edits: tuple[Edit, ...]
    times: int
    reads: bool  # the worker looks before it writes
    run: int


@dataclass(frozen=True)
class Other:
    """Anything else: what, by whom, to which thread, and a number."""

    what: Literal["again", "delete", "copy", "prune", "delete_for_runs", "list", "get"]
    thread: int
    worker: str
    n: int


steps = st.builds(
    Steps,
    thread=threads,
    parent=st.sampled_from((0, 0, 0, 0, 1, 2, 5)),
    workers=st.lists(workers, min_size=1, max_size=2).map(tuple),
    edits=st.lists(edits, min_size=1, max_size=3).map(tuple),
    times=st.sampled_from((1, 1, 1, 2, 5, 18)),
    reads=st.booleans(),
    run=st.integers(0, 3),
)
others = st.builds(
    Other,
    what=st.sampled_from(
        ("again", "again", "delete", "copy", "prune", "prune", "delete_for_runs", "list", "get", "get")
    ),
    thread=threads,
    worker=workers,
    n=st.integers(0, 30),
)
lives = st.tuples(
    st.sampled_from(KINDS),
    st.lists(steps, min_size=1, max_size=3).flatmap(
        lambda first: st.lists(st.one_of(steps, others), min_size=2, max_size=9).map(lambda rest: [*first, *rest])
    ),
)


@pytest.fixture
def small_deltas() -> Iterator[None]:
    """Small values are worth a delta, and each kind of step comes after a few appends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blobs, "LEAST_BYTES", 24)
        for name, value in {"WORTH_BYTES": 4, "PROBE_BYTES": 8, "CHECKED_BYTES": 64, "STEPS": STEPS}.items():
            patch.setattr(_delta, name, value)
        _forget_numbers()
        yield
    _forget_numbers()


def _forget_numbers() -> None:
    for cached in (_delta.base_number, _delta.floors):
        cached.cache_clear()


# Values and what becomes of them.


def item(n: int) -> Any:
    """Something that stands in a list."""
    text = f"item {n} " * (1 + n % 7)
    some: tuple[Any, ...] = (
        HumanMessage(text, id=str(n)),
        AIMessage(text, id=str(n), tool_calls=[{"name": "f", "args": {"n": n}, "id": text}]),
        text,
        {"id": n, "text": text},
        {"n": [n, [text, None, 0.5]]},
        n * 1_000_003,
        b"\x1f\x1e\x1d\x00" * (n % 9),
    )
    return some[n % len(some)]


def begin(n: int) -> Any:
    """A value of any type."""
    makers: tuple[Callable[[], Any], ...] = (
        lambda: [item(n + k) for k in range(n % 25)],
        lambda: {f"key {k}": item(n + k) for k in range(n % 20)},
        lambda: {"log": [item(n + k) for k in range(14 + n % 5)], "rest": {"of": "it " * 9}},
        lambda: Interrupt([item(n + k) for k in range(n % 20)], id="i"),
        lambda: f"line {n}\n" * (n % 60),
        lambda: bytes(range(256))[: n % 200] * 3,
        lambda: bytearray(b"%03d" % n * (n % 50)),
        lambda: None,
        lambda: n,
    )
    return makers[n % len(makers)]()


def edited(value: Any, op: str, n: int) -> Any:
    """What an edit makes of a value, which it leaves alone; of what cannot be edited so something else."""
    if op == "retype":
        return begin(n)
    if op == "same":
        return value
    if isinstance(value, list):
        return _list(value, op, n)
    if isinstance(value, (str, bytes, bytearray)):
        more = f"and {n}, " * (1 + n % 5)
        return type(value)(_text(value, op, n, more if isinstance(value, str) else more.encode()))
    if isinstance(value, dict):
        return _dict(value, op, n)
    if isinstance(value, Interrupt):
        return Interrupt(edited(value.value, op, n), id=value.id)
    return begin(n)


def _list(value: list[Any], op: str, n: int) -> list[Any]:
    at = n % (len(value) + 1)
    changes: dict[str, Callable[[], list[Any]]] = {
        "append": lambda: [*value, item(n)],
        "extend": lambda: [*value, *map(item, range(n, n + n % 6))],
        "edit": lambda: [*value[:at], item(n), *value[at + 1 :]],
        "inside": lambda: [*value[:at], *(edited(v, "append", n) for v in value[at : at + 1]), *value[at + 1 :]],
        "remove": lambda: [*value[:at], *value[at + 1 :]],
        "front": lambda: value[at // 2 :],
        "window": lambda: [*value[1:], item(n)],
        "put in": lambda: [*value[:at], item(n), *value[at:]],
        "cut": lambda: value[: len(value) - at // 2],
        "reverse": lambda: value[::-1],
    }
    return changes.get(op, list)()


def _text(value: Any, op: str, n: int, more: Any) -> Any:
    at = n % (len(value) + 1)
    changes: dict[str, Callable[[], Any]] = {
        "append": lambda: value + more,
        "extend": lambda: value + more * 3,
        "edit": lambda: value[:at] + more + value[at + len(more) :],
        "inside": lambda: value[:at] + more[:1] + value[at + 1 :],
        "remove": lambda: value[:at] + value[at + 9 :],
        "front": lambda: value[at // 2 :],
        "window": lambda: value[len(more) :] + more,
        "put in": lambda: more + value,
        "cut": lambda: value[: len(value) - at // 2],
        "reverse": lambda: value[::-1],
    }
    return changes.get(op, lambda: value[:0])()


def _dict(value: dict[str, Any], op: str, n: int) -> dict[str, Any]:
    keys = list(value)
    if op == "append" or not keys:
        return {**value, f"key {len(keys)}": item(n)}
    key = keys[n % len(keys)]
    if op == "clear":
        return {}
    if op in ("remove", "front", "cut"):
        return {k: v for k, v in value.items() if k != key}
    if op == "reverse":
        return {k: value[k] for k in reversed(keys)}
    return {**value, key: edited(value[key], "append" if op == "inside" else op, n)}


# What a checkpointer has to do with them.


class Saved(NamedTuple):
    """A checkpoint as it was put."""

    parent: str | None
    values: dict[str, Any]
    versions: dict[str, Any]
    new: dict[str, Any]
    run: str


NOTHING = Saved(None, {}, {}, {}, "")


@dataclass
class Thread:
    """What a thread holds, in plain Python: checkpoints that name values by channel and version."""

    checkpoints: dict[str, Saved] = field(default_factory=dict)
    blobs: dict[tuple[str, Any], Any] = field(default_factory=dict)
    ever: dict[str, Saved] = field(default_factory=dict)  # also what has gone: slow workers put it again
    newest: Saved = NOTHING

    def put(self, checkpoint_id: str, saved: Saved) -> None:
        """New values stand under their versions, others where there are none."""
        for channel, value in saved.values.items():
            at = (channel, saved.versions[channel])
            if channel in saved.new or at not in self.blobs:
                self.blobs[at] = value
        self.checkpoints[checkpoint_id] = self.ever[checkpoint_id] = saved

    def keep(self, ids: set[str]) -> None:
        """Only these checkpoints stay, and what they name."""
        self.checkpoints = {i: saved for i, saved in self.checkpoints.items() if i in ids}
        named = {(c, saved.versions[c]) for saved in self.checkpoints.values() for c in saved.values}
        self.blobs = {at: value for at, value in self.blobs.items() if at in named}

    def values(self, checkpoint_id: str) -> dict[str, Any]:
        saved = self.checkpoints[checkpoint_id]
        return {channel: self.blobs[channel, saved.versions[channel]] for channel in saved.values}

    def ids(self) -> list[str]:
        """Newest first."""
        return sorted(self.checkpoints, reverse=True)

    def copy(self) -> Thread:
        return Thread(dict(self.checkpoints), dict(self.blobs), dict(self.ever), self.newest)
