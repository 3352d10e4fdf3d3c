"""Random edits of random values by workers that take turns: every one of them reads what was put, whatever it knows.

What is stored is looked at as well: nothing is there that no checkpoint needs, and chains of deltas are short.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver

from redis_ckpt import _delta
from redis_ckpt._keys import GS, RS, US, thread_keys
from tests.profiles import by_profile
from tests.property.edits import (
    KEPT,
    STEPS,
    Edit,
    Kind,
    Other,
    Saved,
    Steps,
    Thread,
    begin,
    edited,
    lives,
)
from tests.property.edits import small_deltas as small_deltas
from tests.property.strategies import same
from tests.savers import Facade, MakeSaver, arguments, cfg, in_one_colour, on_valkey

SECONDS = 1800.0  # the long profile, or the shrinking of a failure
EXAMPLES = by_profile(60, 2000)
CHECKS = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
SLACK = 4  # what keep_last may leave beside what is wanted
MOST_THREADS = 4

_numbers = itertools.count()


def checkpoint_id(n: int) -> str:
    return f"1f0a4b1c-{n:04}-6d10-8001-2c1f3b7a9d55"


def told(found: CheckpointTuple | None) -> Any:
    assert found is not None
    assert found.parent_config is None or found.parent_config["configurable"]["thread_id"]
    return found.checkpoint["id"], found.checkpoint["channel_versions"], found.checkpoint["channel_values"]


class Play:
    """The threads of one example; their names are its own, so that savers may serve many examples."""

    def __init__(self, savers: Mapping[str, Facade], raw: redis.Redis, kind: Kind) -> None:
        raw.flushall()
        self.savers, self.raw, self.kind = savers, raw, kind
        self.number = next(_numbers)
        self.threads = {f"t-{self.number}": Thread()}
        self.clock = itertools.count(1)
        self.others = InMemorySaver()
        self.deltas = 0

    def name(self, n: int) -> str:
        return [*self.threads][n % len(self.threads)]

    def do(self, action: Steps | Other) -> None:
        thread_id = self.name(action.thread)
        if isinstance(action, Steps):
            for n in range(action.times):
                worker = action.workers[n % len(action.workers)]
                self.step(thread_id, worker, action, action.parent if n == 0 else 0, n)
        else:
            calls = {
                "again": self.again,
                "delete": self.delete,
                "copy": self.copy,
                "prune": self.prune,
                "delete_for_runs": self.delete_for_runs,
                "list": self.list,
                "get": self.get,
            }
            calls[action.what](thread_id, action.worker, action.n)
        for each in self.threads:
            self.check(each)

    # Writing.

    def step(self, thread_id: str, worker: str, action: Steps, parent: int, n: int) -> None:
        thread, saver = self.threads[thread_id], self.savers[worker]
        ids = thread.ids()
        parent_id = ids[min(parent, len(ids) - 1)] if ids else None
        # of a thread that was deleted a worker goes on with what it has
        before = thread.newest if parent_id is None else thread.checkpoints[parent_id]
        values = dict(before.values) if parent_id is None else thread.values(parent_id)
        if action.reads:
            saver.get_tuple(cfg(thread_id, "", parent_id))
        versions, new = dict(before.versions), dict[str, Any]()
        following = self.next_version(saver, max(versions.values(), default=None))
        for channel, op, at in action.edits if n == 0 else map(_more, action.edits, itertools.repeat(n)):
            if op == "empty" and channel in values and self.kind != "by hand":
                del values[channel]
            else:
                values[channel] = edited(values[channel], op, at) if channel in values else begin(at)
            versions[channel] = new[channel] = following
        run = f"run-{self.number}-{action.run}"
        self.put(thread_id, worker, checkpoint_id(next(self.clock)), Saved(parent_id, values, versions, new, run))

    def next_version(self, saver: Facade, current: Any) -> Any:
        if self.kind == "by hand":
            return (current or 0) + 1
        return (saver if self.kind == "ours" else self.others).get_next_version(current, None)

    def put(self, thread_id: str, worker: str, name: str, saved: Saved) -> None:
        thread = self.threads[thread_id]
        given: dict[str, Any] = {c: bytearray(v) if type(v) is bytearray else v for c, v in saved.values.items()}
        self.savers[worker].put(
            *arguments(
                name,
                t=thread_id,
                parent=saved.parent,
                vers=saved.versions,
                new=saved.new,
                meta={"run_id": saved.run},
                **given,
            )
        )
        for value in given.values():  # whoever goes on with it may change it in place
            if type(value) is bytearray:
                value[:1] = b"#"
        thread.put(name, saved)
        thread.newest = saved
        if worker == "few":
            self.look_what_was_kept(thread_id)

    def look_what_was_kept(self, thread_id: str) -> None:
        thread, ids = self.threads[thread_id], self.threads[thread_id].ids()
        raw: Any = self.raw
        kept = {m.partition(US)[2].decode() for m in raw.zrange(thread_keys(b"ckpt", thread_id).order, 0, -1)}
        assert {*ids[:KEPT]} <= kept <= {*ids}
        assert len(kept) <= max(KEPT + SLACK, len(ids) if len(kept) == len(ids) else 0)
        thread.keep(kept)

    # Everything else.

    def again(self, thread_id: str, worker: str, n: int) -> None:
        """What was put once is put again, though it may have been removed."""
        thread = self.threads[thread_id]
        if thread.ever:
            name = sorted(thread.ever, reverse=True)[n % len(thread.ever)]
            self.put(thread_id, worker, name, thread.ever[name])

    def delete(self, thread_id: str, worker: str, n: int) -> None:
        self.savers[worker].delete_thread(thread_id)
        self.threads[thread_id].keep(set())

    def copy(self, thread_id: str, worker: str, n: int) -> None:
        if len(self.threads) < MOST_THREADS:
            target = f"t-{self.number}-{len(self.threads)}"
            self.savers[worker].copy_thread(thread_id, target)
            self.threads[target] = self.threads[thread_id].copy()

    def prune(self, thread_id: str, worker: str, n: int) -> None:
        self.savers[worker].prune([thread_id])
        self.threads[thread_id].keep({*self.threads[thread_id].ids()[:1]})
        self.check_stored(thread_id, is_tidy=True)

    def delete_for_runs(self, thread_id: str, worker: str, n: int) -> None:
        runs = {f"run-{self.number}-{n % 4}"}
        self.savers[worker].delete_for_runs([*runs])
        for thread in self.threads.values():
            thread.keep({i for i, saved in thread.checkpoints.items() if saved.run not in runs})

    def list(self, thread_id: str, worker: str, n: int) -> None:
        expected = [self.expected(thread_id, i) for i in self.threads[thread_id].ids()][: n + 1]
        found = [told(t) for t in self.savers[worker].list(cfg(thread_id), limit=n + 1)]
        assert same(found, expected), f"{found} is not {expected}"

    def get(self, thread_id: str, worker: str, n: int) -> None:
        if ids := self.threads[thread_id].ids():
            self.check_get(thread_id, worker, ids[n % len(ids)])

    # Looking.

    def expected(self, thread_id: str, name: str) -> Any:
        serde = self.savers["one"].raw_saver.serde
        thread = self.threads[thread_id]
        values = {c: serde.loads_typed(serde.dumps_typed(v)) for c, v in thread.values(name).items()}
        return name, thread.checkpoints[name].versions, values

    def check_get(self, thread_id: str, worker: str, name: str) -> None:
        found = told(self.savers[worker].get_tuple(cfg(thread_id, "", name)))
        expected = self.expected(thread_id, name)
        assert same(found, expected), f"{worker}: {found} is not {expected}"

    def check(self, thread_id: str) -> None:
        """The newest as every second worker reads it; the others go on with what they know."""
        ids = self.threads[thread_id].ids()
        for worker in ("two", "without"):
            if ids:
                self.check_get(thread_id, worker, ids[0])
            else:
                assert self.savers[worker].get_tuple(cfg(thread_id)) is None
        self.check_stored(thread_id)

    def check_stored(self, thread_id: str, *, is_tidy: bool = False) -> None:
        keys = thread_keys(b"ckpt", thread_id)
        raw: Any = self.raw
        records: dict[bytes, bytes] = raw.hgetall(keys.checkpoints)
        stored: dict[bytes, bytes] = raw.hgetall(keys.blobs)
        bases = {name[1:]: _base(name[1:], record) for name, record in stored.items() if name.startswith(GS)}
        named = {
            name.partition(US)[0] + US + ref
            for name, record in records.items()
            if US in name
            for ref in record.split(GS, 5)[4].split(RS)
            if ref
        }
        orphans = {name for name in records.get(b"orphans", b"").split(RS) if name}
        assert not (is_tidy and orphans)
        there = {name.removeprefix(GS) for name in stored}
        assert len(there) == len(stored), "a value is stored whole and as a delta"
        assert _closure(named, bases) <= there <= _closure(named | orphans, bases), "blobs that nothing needs"
        assert all(len(_closure([name], bases)) - 1 <= _most_links(stored[GS + name]) for name in bases)
        assert not (bases and self.kind == "by hand")
        self.deltas += len(bases)

    def check_all(self) -> None:
        for thread_id, thread in self.threads.items():
            for worker in self.savers:
                for name in thread.ids():
                    self.check_get(thread_id, worker, name)
                self.list(thread_id, worker, len(thread.ids()))


def _more(edit: Edit, n: int) -> Edit:
    return edit[0], edit[1], edit[2] + n


def _base(name: bytes, record: bytes) -> bytes:
    return b"".join(name.rpartition(US)[:2]) + _delta.decode(record).base


def _closure(names: Iterable[bytes], bases: Mapping[bytes, bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for start in names:
        name: bytes | None = start
        while name is not None and name not in found:
            found.add(name)
            name = bases.get(name)
    return found


def _most_links(record: bytes) -> int:
    return sum(b // a - 1 for a, b in itertools.pairwise(STEPS)) + _delta.decode(record).number // STEPS[-1]


def _play(
    make_saver: MakeSaver, raw: redis.Redis, life: tuple[Kind, list[Steps | Other]], made: dict[str, Facade]
) -> None:
    if not made:
        options: dict[str, dict[str, Any]] = {
            "one": {},
            "two": {},
            "without": {"cache_bytes": 0},
            "tiny": {"cache_bytes": 4_000},
            "few": {"keep_last": KEPT},
        }
        made |= {name: make_saver(**given) for name, given in options.items()}
    kind, actions = life
    play = Play(made, raw, kind)
    for action in actions:
        play.do(action)
    play.check_all()


@pytest.fixture
def made() -> dict[str, Facade]:
    """The savers of all examples of a test."""
    return {}


@pytest.mark.timeout(SECONDS)
@pytest.mark.usefixtures("small_deltas")
@on_valkey
@in_one_colour
@settings(CHECKS, max_examples=EXAMPLES)
@given(life=lives)
def test_random_edits(make_saver: MakeSaver, raw: redis.Redis, made: dict[str, Facade], life: Any) -> None:
    _play(make_saver, raw, life, made)


@pytest.mark.timeout(SECONDS)
@pytest.mark.usefixtures("small_deltas")
@settings(CHECKS, max_examples=EXAMPLES // 20)
@given(life=lives)
def test_random_edits_on_every_server_in_both_colours(
    make_saver: MakeSaver, raw: redis.Redis, made: dict[str, Facade], life: Any
) -> None:
    _play(make_saver, raw, life, made)
