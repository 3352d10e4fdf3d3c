"""How the writers of the soak write: chains of checkpoints, alone or in a crowd, each step read back."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import redis
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from redis_ckpt import CheckpointerError
from tests.savers import Facade, cfg, checkpoint
from tests.soak.content import (
    EMPTY,
    LATE,
    LOG,
    SNAPSHOT_EVERY,
    BrokenError,
    State,
    check,
    digest,
    extended,
    place,
    state_of,
    times_left,
)

STEPS_OF_A_RUN = 25


class Hand:
    """One process: its saver, a client that sees the keys, its luck and what it has counted."""

    def __init__(self, name: str, saver: Facade, raw: redis.Redis, seed: int) -> None:
        self.name, self.saver, self.raw = name, saver, raw
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._serial = 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def next_name(self) -> str:
        """A name that is used once; later ones are greater."""
        self._serial += 1
        return f"{self.name}-{self._serial:07}"

    @property
    def run_id(self) -> str:
        return f"run-{self.name}-{self._serial // STEPS_OF_A_RUN}"


class Chain:
    """A namespace of a thread, as one writer writes to it."""

    delta = False
    steady = 0.75  # the chance that `stable` stays as it is

    def __init__(self, hand: Hand, thread_id: str, ns: str = "", parents: Mapping[str, str] | None = None) -> None:
        self.hand, self.saver = hand, hand.saver
        self.thread_id, self.ns = thread_id, ns
        self.parents = dict(parents or {})

    def config(self, checkpoint_id: str | None = None) -> RunnableConfig:
        return cfg(self.thread_id, self.ns, checkpoint_id)

    def write(self, checkpoint_id: str) -> list[tuple[str, str, Any]]:
        """The writes of one task; answers them as they will be read."""
        task = self.hand.next_name()
        writes: list[tuple[str, Any]] = [("x", task), ("y", task)]
        if self.delta and self.hand.chance(0.7):
            writes.append((LOG, [f"{task}{letter}" for letter in "abc"[: self.hand.random.randint(1, 3)]]))
        self.saver.put_writes(self.config(checkpoint_id), writes, task, "~")
        self.hand.counts["put_writes"] += 1
        if self.hand.chance(0.2):
            times_left(self.hand.raw, self.thread_id)
        return [(task, channel, value) for channel, value in writes]

    def put(self, parent: State, checkpoint_id: str, source: str = "loop", *, alone: bool = False) -> State:
        """A child of `parent`; `alone` stores a snapshot of its log and names no parent."""
        hand, items = self.hand, parent.waiting
        n = hand.next_name()
        stable = parent.stable if parent.stable and hand.chance(self.steady) else [f"{n} {k}" for k in range(30)]
        log, versions = extended(parent.log, items), dict(parent.versions)
        updates, steps = parent.counters[0] + bool(items), parent.counters[1] + 1
        # A branch from a checkpoint with writes to the log stores it: those writes are another child's.
        snapshot = updates >= SNAPSHOT_EVERY or alone or (source == "fork" and bool(items))
        values: dict[str, Any] = {"n": n, "stable": stable, "digest": digest(n, stable, log)}
        changed = {"n", "digest"} | ({"stable"} if stable is not parent.stable else set())
        if items or alone:
            changed.add(LOG)
        if snapshot:
            values[LOG] = _DeltaSnapshot(log)
        version = self.saver.get_next_version(max(versions.values(), default=None))
        new = dict.fromkeys(changed, version)
        versions.update(new)
        counters = (0, 0) if snapshot else (updates, steps)
        metadata: Any = {"source": source, "step": hand.counts["puts"], "run_id": hand.run_id, "parents": self.parents}
        if self.delta:
            metadata |= {"asked": len(parent.asked)}
            metadata |= {"counters_since_delta_snapshot": {LOG: counters}} if any(counters) else {}
        self.saver.put(
            self.config(None if alone else parent.id), checkpoint(checkpoint_id, values, versions), metadata, new
        )
        hand.counts["puts"] += 1
        return State(checkpoint_id, n, stable, log, versions, counters, [])

    def put_or_store(self, parent: State, checkpoint_id: str, source: str) -> State:
        """A child of `parent`; if that was removed meanwhile, alone."""
        try:
            return self.put(parent, checkpoint_id, source)
        except CheckpointerError as error:
            if type(error) is not CheckpointerError:
                raise
        if self.saver.get_tuple(self.config(parent.id)) is not None:
            raise BrokenError(f"{place(self.config(parent.id))} is there, and a child of it was refused")
        self.hand.counts["refused"] += 1
        return self.put(parent, checkpoint_id, source, alone=True)


class Line(Chain):
    """A chain that nobody else writes to: what its head holds is known, whoever removes what is old."""

    delta = True

    def __init__(
        self,
        hand: Hand,
        thread_id: str,
        ns: str = "",
        parents: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(hand, thread_id, ns, parents)
        self.head = self.previous = EMPTY
        self._old: deque[str] = deque(maxlen=50)

    def begin_anew(self) -> None:
        self.head = self.previous = EMPTY
        self._old.clear()

    def step(self, checkpoint_id: str | None = None) -> None:
        """Writes and a checkpoint, or a fork, or late writes; then everything is read back."""
        hand = self.hand
        if self.head.id and hand.chance(0.1) and self.fork():
            self.verify()
            return
        if self.head.id and hand.chance(0.5):
            self.head.pending.extend(self.write(self.head.id))
        if self._old and hand.chance(0.05):
            self.saver.put_writes(self.config(hand.random.choice(self._old)), [(LATE, LATE)], LATE)
            hand.counts["late"] += 1
        new_id = checkpoint_id or str(uuid6())
        # LangGraph may store writes before their checkpoint; before the first one they would be strays.
        early = self.write(new_id) if self.head.id and hand.chance(0.2) else []
        self._move_to(self.put(self.head, new_id))
        self.head.pending.extend(early)
        if hand.chance(0.3):
            self.head.pending.extend(self.write(self.head.id))
        self.verify()

    def verify(self) -> None:
        """The newest checkpoint must be the one that was put last, whole, with its writes."""
        found = self.saver.get_tuple(self.config())
        if found is None or found.checkpoint["id"] != self.head.id:
            there = found and found.checkpoint["id"]
            raise BrokenError(f"{place(self.config(self.head.id))} should be the newest, not {there!r}")
        check(self.saver, found)
        state = state_of(self.saver, found)
        for part in ("n", "stable", "log", "versions", "asked"):
            read, expected = getattr(state, part), getattr(self.head, part)
            if read != expected:
                raise BrokenError(f"{place(found)}: {part} is {read!r}, not {expected!r}")
        self.hand.counts["read back"] += 1

    def fork(self) -> bool:
        """A branch from an older checkpoint, if one is left."""
        found = self.saver.list(self.config(), limit=8)
        if not found or found[0].checkpoint["id"] != self.head.id:
            raise BrokenError(f"{place(self.config(self.head.id))} should be the first of the list")
        older = [item for item in found[1:] if check(self.saver, item, may_go=True)]
        self.hand.counts["read back"] += 1 + len(older)
        if not older:
            return False
        chosen = self.hand.random.choice(older)
        try:
            parent = state_of(self.saver, chosen)
        except Exception:
            if self.saver.get_tuple(chosen.config) is None:
                return False
            raise
        self._fork(parent)
        return True

    def branch(self) -> None:
        """A branch from what was the newest before, while a sweep may just be about to remove that."""
        if self.previous.id:
            self._fork(self.previous)
            self.verify()

    def _fork(self, parent: State) -> None:
        self._move_to(self.put_or_store(parent, str(uuid6()), "fork"))
        self.hand.counts["forks"] += 1

    def _move_to(self, head: State) -> None:
        self.previous, self.head = self.head, head
        if self.previous.id:
            self._old.append(self.previous.id)


class Crowd(Chain):
    """A chain that several processes write to: nobody knows its head, but whatever is seen is whole."""

    steady = 0.5

    def __init__(self, hand: Hand, thread_id: str, ns: str = "", parents: Mapping[str, str] | None = None) -> None:
        super().__init__(hand, thread_id, ns, parents)
        self.newest = ""

    def step(self) -> None:
        parent, hand = self.look(), self.hand
        new_id = str(uuid6())
        if hand.chance(0.2):
            self.write(new_id)
        self.put_or_store(parent, new_id, "fork" if hand.chance(0.1) else "loop")
        if hand.chance(0.5):
            self.write(new_id)
        self.newest = max(self.newest, new_id)
        self.look(new_id)  # it may be gone, if another one is newer
        if hand.chance(0.1):
            self.look_at_all()

    def look(self, checkpoint_id: str | None = None) -> State:
        """The newest or a certain checkpoint; EMPTY if there is none."""
        while (found := self.saver.get_tuple(self.config(checkpoint_id))) is not None:
            if check(self.saver, found, may_go=True):
                self.hand.counts["read back"] += 1
                try:
                    return state_of(self.saver, found)
                except CheckpointerError:  # it went just now; what is there instead is looked at
                    if self.saver.get_tuple(found.config) is not None:
                        raise
        return EMPTY

    def look_at_all(self) -> None:
        """Every checkpoint of the thread, of all namespaces, is whole or gone by now."""
        for item in self.saver.list({"configurable": {"thread_id": self.thread_id}}, limit=30):
            check(self.saver, item, may_go=True)
            self.hand.counts["read back"] += 1
