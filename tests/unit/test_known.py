"""What a process knows: deltas made and read from it, and the cache that holds it."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from typing import Any

import fakeredis
import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redis_ckpt import AsyncRedisSaver, RedisSaver, _delta
from redis_ckpt._delta import BrokenChainError, Delta
from redis_ckpt._known import ENTRY_BYTES, Cache, Known, Link, Mark, delta_for, rebuilt, whole
from redis_ckpt._versions import next_version
from tests.savers import put

KIND = b"msgpack"


def versions() -> Iterator[bytes]:
    """Versions as text, one after another."""
    current: Any = None
    while True:
        current = next_version(current)
        yield b"%d" % current


class Chain:
    """One channel's records on a server, and what a worker knows of it."""

    def __init__(self) -> None:
        self._versions = versions()
        self.records: dict[bytes, tuple[int, Delta | None, Known]] = {}
        self.known: Known | None = None
        self.version = b""

    def store(self, data: bytes, kind: bytes = KIND) -> Delta | None:
        """What `put` does, with what is known."""
        self.version = next(self._versions)
        made = delta_for(self.known, kind, data, self.version) if self.known else None
        record, self.known = made or (None, whole(kind, data, self.version, len(data) + 9))
        delta = None if record is None else _delta.decode(record)
        self.records[self.version] = self.known.mark.size, delta, self.known
        return delta

    def read(self, version: bytes, known: Known | None = None, everything: bool = False) -> Known:
        """What `get_tuple` does: down to a whole value, or to one that is known."""
        chain: list[Link] = []
        while True:
            if known is not None and (base := known.at(version)) is not None:
                break
            size, delta, stored = self.records[version]
            if delta is None:
                base = stored
                break
            chain.append(Link(version, size, delta))
            version = delta.base
        return rebuilt(base, chain[::-1], everything) if chain else base


def messages(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {"id": f"{n:06}", "text": f"this is message number {n}, and it goes on a while"} for n in range(start, count)
    ]


# Deltas of what is known.


def test_an_append_is_what_is_new() -> None:
    chain = Chain()
    assert chain.store(ormsgpack.packb(messages(20))) is None
    made = chain.store(ormsgpack.packb(messages(21)))
    assert made is not None
    assert made.shape.is_append
    assert len(made.new) < 100
    assert chain.read(chain.version).data == ormsgpack.packb(messages(21))


def test_an_unchanged_value_is_next_to_nothing() -> None:
    chain = Chain()
    chain.store(ormsgpack.packb(messages(20)))
    made = chain.store(ormsgpack.packb(messages(20)))
    assert made is not None
    assert len(made.new) == 3


@pytest.mark.parametrize("kind", [KIND, b"pickle", b"bytes"])
@pytest.mark.parametrize("appends", [40, 2_100])
def test_a_long_chain_is_read_in_few_links_from_anywhere(kind: bytes, appends: int) -> None:
    chain, data, wholes = Chain(), b"start" * 60, 0
    for n in range(appends):
        data += b"%06d more and more of it" % n
        wholes += chain.store(data, kind) is None
    assert wholes <= 3  # a base that is less than a quarter of the value is none
    known, stored = chain.known, [*chain.records.items()]
    assert known is not None
    for version, (_, delta, then) in stored[:: max(1, appends // 40)]:
        assert chain.read(version).data == then.data
        assert delta is None or delta.number == then.mark.number
        # A worker that was there then reads the newest from what it knows.
        now = chain.read(chain.version, then)
        assert now.data == data
        assert set(now.versions) <= set(known.versions)
    for mark in known.marks:  # and earlier ones are here as a whole
        found = known.at(mark.version)
        assert found is not None
        assert found.data == chain.records[mark.version][2].data


def test_a_known_version_that_went_on_otherwise_is_not_here() -> None:
    chain = Chain()
    chain.store(b"a" * 600)
    first = chain.version
    chain.store(b"a" * 590 + b"b" * 300)
    assert chain.known is not None
    assert chain.known.versions == [chain.version]
    assert chain.known.at(first) is None
    assert chain.known.at(b"123") is None


@pytest.mark.parametrize(
    ("kind", "data", "version"),
    [
        (b"pickle", b"x" * 600, b"2000000000"),  # another type
        (KIND, b"x" * 600, b"1000000000"),  # the same version
        (KIND, b"x" * 600, b"999999999"),  # an earlier one
        (KIND, b"x" * 600, b"=00000000000000000000000000000009.0000000000000001"),  # of another kind
        (KIND, b"y" * 600, b"2000000000"),  # nothing is left of it
        (KIND, b"x" * 100, b"2000000000"),  # small
    ],
)
def test_what_is_stored_whole(kind: bytes, data: bytes, version: bytes) -> None:
    before = whole(KIND, b"x" * 500, b"1000000000", 510)
    assert delta_for(before, KIND, b"x" * 600, b"2000000000") is not None
    assert delta_for(before, kind, data, version) is None


def test_numbers_begin_anew_where_the_base_of_a_step_is_not_known() -> None:
    chain = Chain()
    for n in range(31):
        chain.store(b"x" * (600 + n))
    assert chain.known is not None
    assert chain.known.mark.number == 30
    chain.known = chain.known._replace(marks=())
    assert chain.store(b"x" * 700) is not None
    assert chain.store(b"x" * 701) is None  # number 32 would be on number 0
    assert chain.store(b"x" * 702) is not None


def test_a_step_of_32_on_a_base_whose_end_has_gone() -> None:
    """The list was cut meanwhile: only what is still there of the base counts."""
    chain = Chain()
    chain.store(b"a" * 2_000 + b"b" * 500)
    chain.store(b"a" * 2_000)
    for n in range(30):
        assert chain.store(b"a" * 2_000 + b"c" * (n + 1)) is not None
    made = chain.store(b"a" * 2_000 + b"c" * 31)
    assert made is not None
    assert (made.number, made.shape.keep) == (32, 2_000)
    assert chain.read(chain.version).data == b"a" * 2_000 + b"c" * 31


@settings(max_examples=40)
@given(st.data())
def test_any_edits_in_any_order_read_back(data: st.DataObject) -> None:
    random_bytes = random.Random(data.draw(st.integers(0, 99)))
    chain = Chain()
    items = messages(8)
    for n in range(data.draw(st.integers(1, 45))):
        edit = data.draw(st.sampled_from(("append", "append", "append", "append", "edit", "cut", "front", "put in")))
        at = data.draw(st.integers(0, len(items))) if edit in ("edit", "put in", "cut") else 0
        items = {
            "append": [*items, *messages(9 + n, 8 + n)],
            "edit": [*items[:at], {"id": "edited"}, *items[at + 1 :]],
            "cut": items[: max(at, len(items) - 3)],
            "front": items[1:],
            "put in": [*items[:at], {"id": random_bytes.randbytes(9)}, *items[at:]],
        }[edit]
        chain.store(ormsgpack.packb(items))
    some = [*chain.records.items()]
    for version, (_, _, then) in some:
        assert chain.read(version).data == then.data
    version, (_, _, other) = some[data.draw(st.integers(0, len(some) - 1))]
    assert chain.known is not None
    assert chain.read(chain.version, other).data == chain.known.data
    page = chain.read(chain.version, other, everything=True)
    for version in page.versions:  # older ones are cut out of it
        found = page.at(version)
        assert found is not None
        assert found.data == chain.records[version][2].data
    for mark in (chain.known.mark, *chain.known.marks):
        found = chain.known.at(mark.version)
        assert (found is not None) is (mark.version in chain.known.versions)
        assert found is None or found.data == chain.records[mark.version][2].data


def test_a_base_of_another_type_is_a_broken_chain() -> None:
    chain = Chain()
    chain.store(b"x" * 500)
    base = chain.known
    made = chain.store(b"x" * 600)
    assert base is not None
    assert made is not None
    with pytest.raises(BrokenChainError, match="another type"):
        rebuilt(base._replace(kind=b"pickle"), [Link(chain.version, 9, made)])


# The cache.


def entry(size: int, marks: int = 0) -> Known:
    mark = Mark(b"1", 0, 1, 1, 1, b"")
    return Known(KIND, bytes(size), mark, (mark,) * marks)


def cost(known: Known) -> int:
    cache = Cache(10**9)
    cache.put("t", "", {"a": known})
    return cache.bytes


def held(cache: Cache) -> set[tuple[str, str, str]]:
    return {(t, ns, c) for t in "tuvw" for ns in ("", "sub") for c in cache.get(t, ns)}


def test_the_least_recently_used_goes_first() -> None:
    cache = Cache(3 * cost(entry(1_000)))
    for thread_id in "tuv":
        cache.put(thread_id, "", {"a": entry(1_000)})
    cache.get("t", "")  # counts as use
    cache.put("w", "", {"a": entry(1_000)})
    assert held(cache) == {("t", "", "a"), ("v", "", "a"), ("w", "", "a")}
    assert cache.get("u", "") == {}


def test_channels_of_one_thread_go_in_their_order() -> None:
    cache = Cache(2 * cost(entry(1_000)))
    cache.put("t", "", {"a": entry(1_000), "b": entry(1_000)})
    cache.put("t", "", {"a": entry(999)})
    cache.put("t", "", {"c": entry(1_000)})
    assert cache.get("t", "").keys() == {"a", "c"}


def test_threads_and_namespaces_are_kept_apart() -> None:
    cache = Cache(10**6)
    cache.put("t", "", {"a": entry(1)})
    cache.put("t", "sub", {"b": entry(2)})
    assert held(cache) == {("t", "", "a"), ("t", "sub", "b")}


def test_what_takes_the_place_of_something_is_counted_once() -> None:
    cache = Cache(10**6)
    for size in (10, 5_000, 300):
        cache.put("t", "", {"a": entry(size)})
        assert cache.bytes == cost(entry(size)) >= size + ENTRY_BYTES
    cache.put("t", "", {})
    assert cache.bytes == cost(entry(300))
    assert cost(entry(300, marks=3)) > cost(entry(300))


def test_what_is_larger_than_the_cache_drives_nothing_out() -> None:
    cache = Cache(10_000)
    cache.put("t", "", {"a": entry(100)})
    cache.put("u", "", {"a": entry(100), "huge": entry(10_000)})
    assert held(cache) == {("t", "", "a"), ("u", "", "a")}
    cache.put("u", "", {"a": entry(10_000)})  # the older one is not what is stored any more
    assert held(cache) == {("t", "", "a")}
    assert cache.bytes == cost(entry(100))
    cache.put("t", "", {"a": entry(10_000)})
    assert (held(cache), cache.bytes) == (set(), 0)
    cache.put("t", "", {"a": entry(100)})
    assert cache.bytes == cost(entry(100))


def test_a_cache_of_nothing_knows_nothing() -> None:
    cache = Cache(0)
    cache.put("t", "", {"a": entry(0)})
    assert (cache.get("t", ""), cache.bytes) == ({}, 0)


def test_what_was_handed_out_is_the_callers_own() -> None:
    cache = Cache(10**6)
    cache.put("t", "", {"a": entry(1)})
    cache.get("t", "").clear()
    assert cache.get("t", "").keys() == {"a"}


@given(
    st.integers(0, 20_000),
    st.lists(st.tuples(st.sampled_from("tuvw"), st.sampled_from("abc"), st.integers(0, 9_000), st.integers(0, 3))),
)
def test_the_cache_is_never_larger_than_it_may_be(most: int, puts: list[tuple[str, str, int, int]]) -> None:
    cache = Cache(most)
    for thread_id, channel, size, marks in puts:
        cache.put(thread_id, "", {channel: entry(size, marks)})
        assert cache.bytes <= most
        found = [known for t in "tuvw" for known in cache.get(t, "").values()]
        assert cache.bytes == sum(map(cost, found))
        if cost(entry(size, marks)) <= most:
            assert channel in cache.get(thread_id, "")


def test_threads_of_the_process_share_a_cache() -> None:
    cache = Cache(50_000)
    begin, errors = threading.Barrier(8), list[BaseException]()

    def work(n: int) -> None:
        drawn = random.Random(n)
        begin.wait()
        try:
            for _ in range(1_500):
                name = drawn.choice("tuvw")
                cache.put(name, "", {drawn.choice("abc"): entry(drawn.randrange(9_000))})
                assert all(known.kind == KIND for known in cache.get(drawn.choice("tuvw"), "").values())
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors
    assert cache.bytes == sum(cost(known) for t in "tuvw" for known in cache.get(t, "").values()) <= 50_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("first", ["get", "put"])
def test_a_forked_process_begins_anew_even_if_the_lock_was_held(first: str) -> None:
    cache = Cache(10**6)
    cache.put("t", "", {"a": entry(100)})
    with cache._lock:
        child = os.fork()
        if child == 0:  # no assert in here: the child must not go on with the tests
            code = 1
            try:
                free = not cache._lock.locked()  # before anything uses it: several threads may be the first
                if first == "put":
                    cache.put("u", "", {"b": entry(100)})
                empty = cache.get("t", "") == {}
                cache.put("t", "", {"c": entry(200)})
                code = 0 if free and empty and cache.get("t", "").keys() == {"c"} else 2
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cache.get("t", "").keys() == {"a"}


@pytest.mark.parametrize("wrong", [True, 1.5, "64", None, b"1"])
def test_a_size_that_is_no_number_of_bytes_is_refused(wrong: Any) -> None:
    for made in (RedisSaver, AsyncRedisSaver):
        with pytest.raises(TypeError, match="cache_bytes"):
            made("redis://127.0.0.1:1", cache_bytes=wrong)
    with pytest.raises(ValueError, match="cache_bytes"):
        RedisSaver("redis://127.0.0.1:1", cache_bytes=-1)


def test_clones_of_a_saver_share_the_cache() -> None:
    with RedisSaver(redis_client=fakeredis.FakeRedis()) as saver:
        clone: Any = saver.with_allowlist([("tests", "Nothing")])
        put(saver, 1, text="x" * 300, vers={"text": next_version(None)})
        assert clone._cache is saver._cache
        assert saver._cache.bytes > 300
