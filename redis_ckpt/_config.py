"""What a `RunnableConfig` asks for, checked before anything is read or sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.runnables import RunnableConfig


class Target(NamedTuple):
    """The checkpoint, or the place for one, that a config names."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str  # "" is the latest

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint_id!r} of thread {self.thread_id!r}, namespace {self.checkpoint_ns!r},"

    def config(self) -> RunnableConfig:
        """The config that names it."""
        return config_of(self.thread_id, self.checkpoint_ns, self.checkpoint_id)


def config_of(thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> RunnableConfig:
    """The config of one checkpoint."""
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": checkpoint_ns,
            "checkpoint_id": checkpoint_id,
        }
    }


def thread_text(thread_id: Any) -> str:
    """A thread id as text.

    Raises:
        ValueError: It is missing or empty.
        TypeError: It is neither text nor an int or UUID.
    """
    if thread_id is None or thread_id == "":
        raise ValueError(f"thread_id must not be {thread_id!r}")
    if isinstance(thread_id, bool) or not isinstance(thread_id, (str, int, UUID)):
        raise TypeError(f"thread_id must be text, an int or a UUID, not {type(thread_id).__name__}")
    return str(thread_id)


def target_of(config: RunnableConfig) -> Target:
    """The target of a config; a missing namespace is the root's.

    Raises:
        ValueError: It names no thread.
        TypeError: It is no config.
    """
    if type(config) is not dict and config is not None and not isinstance(config, Mapping):
        raise TypeError(
            f'a config is a dict such as {{"configurable": {{"thread_id": ...}}}}, not {type(config).__name__}'
        )
    configurable = (config or {}).get("configurable") or {}
    if configurable.get("thread_id") in (None, ""):
        raise ValueError('the config names no thread_id: pass config={"configurable": {"thread_id": ...}}')
    thread_id = configurable["thread_id"]
    if type(thread_id) is not str:
        thread_id = thread_text(thread_id)
    ns = configurable.get("checkpoint_ns")
    checkpoint_id = configurable.get("checkpoint_id")
    return Target(thread_id, "" if ns is None else str(ns), str(checkpoint_id or ""))
