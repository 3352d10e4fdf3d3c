"""What a serialiser does with a value, all that anybody could notice of it, to compare two of them."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.event_hooks import register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt, Overwrite, Send
from pydantic import BaseModel

from redis_ckpt import _messages
from redis_ckpt.serde import FastSerializer
from tests.property.messages import State


class Reads(Protocol):
    """What restores values."""

    @property
    def loads_typed(self) -> Callable[[tuple[str, bytes]], Any]:
        """The value of (type, bytes)."""


class Observed(NamedTuple):
    """Everything that a call does that anybody could notice."""

    result: Any
    error: str | None
    warnings: list[str]
    log: list[str]
    events: list[Any]


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


def observe(call: Callable[[], Any]) -> Observed:
    """Call as if for the first time in a process: what is only said once is said."""
    for seen in ("_warned_unregistered_types", "_warned_blocked_types", "_warned_unreconstructable_types"):
        getattr(jsonplus, seen, set()).clear()
    events: list[Any] = []
    log = _Log()
    result, error = None, None
    with contextlib.ExitStack() as stack:
        stack.callback(register_serde_event_listener(events.append))
        jsonplus.logger.addHandler(log)
        stack.callback(jsonplus.logger.removeHandler, log)
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        try:
            result = call()
        except Exception as exc:
            error = repr(exc)
        said = [f"{w.category.__name__}: {w.message}" for w in caught]
    return Observed(result, error, said, log.lines, events)


def alike(ours: Any, theirs: Any) -> bool:
    """Nobody could tell one from the other: types, the order of keys, and the hidden parts of models."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, BaseModel):
        hidden = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__", "__dict__")
        return all(alike(getattr(ours, name), getattr(theirs, name)) for name in hidden)
    if isinstance(ours, dict):
        return alike(list(ours.items()), list(theirs.items()))
    if isinstance(ours, (list, tuple, deque)):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(ours, (set, frozenset)):
        return alike(sorted(ours, key=repr), sorted(theirs, key=repr))
    if isinstance(ours, np.ndarray):
        return ours.dtype == theirs.dtype and ours.shape == theirs.shape and bool((ours == theirs).all())
    if isinstance(ours, (float, BaseException)):
        return repr(ours) == repr(theirs)
    if isinstance(ours, (State, Interrupt, Send, Overwrite)):
        slots = [getattr(ours, "__slots__", ()), getattr(ours, "__dict__", {})]
        return all(alike(getattr(ours, name), getattr(theirs, name)) for names in slots for name in names)
    return bool(ours == theirs)


def pair(**options: Any) -> tuple[FastSerializer, JsonPlusSerializer]:
    """A fast serialiser and its parent."""
    return FastSerializer(**options), JsonPlusSerializer(**options)


def same(ours: Observed, theirs: Observed) -> bool:
    """Whether nobody could tell one from the other."""
    return alike(ours.result, theirs.result) and ours[1:] == theirs[1:]


def check_written(value: Any, fast: SerializerProtocol, parent: SerializerProtocol) -> Observed:
    """Both give the same bytes, or the same error."""
    written, expected = observe(lambda: fast.dumps_typed(value)), observe(lambda: parent.dumps_typed(value))
    assert same(written, expected), (written, expected)
    return expected


def check_read(dumped: tuple[str, bytes], fast: Reads, parent: Reads) -> None:
    """Both give the same object, or the same error."""
    ours, theirs = observe(lambda: fast.loads_typed(dumped)), observe(lambda: parent.loads_typed(dumped))
    assert same(ours, theirs), (ours, theirs)


def check_values(value: Any, fast: SerializerProtocol, parent: SerializerProtocol) -> None:
    """Both write and read the same."""
    written = check_written(value, fast, parent)
    if written.error is None:
        check_read(written.result, fast, parent)


def forget_classes() -> None:
    """As if no message had been met yet."""
    _messages.PACKERS.clear()
    _messages.MESSAGES.clear()
    _messages.message_of.cache_clear()
    _messages._message_named.cache_clear()
