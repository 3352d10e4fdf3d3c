"""Deltas and what a worker knows, on real threads: edits and forks, bases that are gone, chains that are damaged."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from redis_ckpt import DamagedCheckpointError
from redis_ckpt._keys import GS, US, blob_ref, thread_keys
from redis_ckpt._versions import next_version
from tests.property.compare import keys_of
from tests.proxy import Proxy
from tests.savers import IDS, Facade, MakeSaver, cfg, in_one_colour, on_valkey, put, values
from tests.servers import on_real_servers

damages = pytest.mark.unaudited("values are removed or changed by hand")
BLOBS = thread_keys(b"ckpt", "t").blobs


def messages(count: int, start: int = 0, size: int = 100) -> list[Any]:
    return [HumanMessage(f"message {n}".ljust(size, "."), id=f"{n:08}") for n in range(start, count)]


def name(n: int) -> str:
    return f"{n:06}"


class Chat:
    """A thread with one value, put again and again, each time at the next version."""

    def __init__(self, t: str = "t") -> None:
        self.t = t
        self.stored: dict[int, tuple[Any, Any]] = {}  # version and value, by the number of the checkpoint

    @property
    def n(self) -> int:
        return max(self.stored, default=0)

    def put(self, s: Facade, value: Any, parent: int | None = None) -> None:
        before = self.n if parent is None else parent
        version = s.get_next_version(self.stored[before][0] if before else None)
        self.stored[n := self.n + 1] = version, copy.deepcopy(value)
        put(s, name(n), t=self.t, parent=name(before) if before else None, vers={"v": version}, v=value)

    def turns(self, s: Facade, count: int) -> Chat:
        for n in range(self.n + 5, self.n + 5 + count):
            self.put(s, messages(n))
        return self

    def ref(self, n: int) -> bytes:
        return US + blob_ref("v", self.stored[n][0])

    def check(self, *some: Facade) -> None:
        """Everything is what was put, one by one and in a list."""
        left = sorted(self.stored, reverse=True)
        for s in some:
            assert [values(found)["v"] for found in s.list(cfg(self.t))] == [self.stored[n][1] for n in left]
            for n in left:
                assert values(s.get_tuple(cfg(self.t, "", name(n))))["v"] == self.stored[n][1]


def stored(raw: Any, t: str = "t") -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = raw.hgetall(thread_keys(b"ckpt", t).blobs)
    return found


def deltas(raw: Any, t: str = "t") -> list[bytes]:
    return [record for field, record in stored(raw, t).items() if field.startswith(GS)]


@pytest.fixture
def behind(make_saver: MakeSaver, proxy: Proxy) -> Facade:
    """A saver behind the proxy; connection and scripts are there."""
    made = make_saver(redis_url=proxy.url)
    made.setup()
    made.get_tuple(cfg("other"))
    return made


# What is stored.

LONG = [*messages(40)]
EDITS: dict[str, tuple[Any, Any, int]] = {
    "append": (LONG[:30], LONG[:31], 500),
    "several": (LONG[:30], LONG[:33], 1_200),
    "window": (LONG[:30], LONG[1:31], 500),
    "trimmed": (LONG[:30], LONG[20:30], 300),
    "cut": (LONG[:30], LONG[:20], 300),
    "edited": (LONG[:30], [*LONG[:9], AIMessage("edited", id="x"), *LONG[10:30]], 500),
    "removed": (LONG[:30], [*LONG[:9], *LONG[10:30]], 300),
    "inside": ({"head": "x" * 300, "log": LONG[:30]}, {"head": "x" * 300, "log": LONG[:31]}, 900),
    "dict": ({f"{n:03}": "x" * 40 for n in range(15)}, {f"{n:03}": "x" * 40 for n in range(16)}, 200),
    "text": ("line\n" * 300, "line\n" * 300 + "more", 200),
    "bytes": (b"\x00" * 900, b"\x00" * 900 + b"more", 200),
    "same": (LONG[:30], LONG[:30], 200),
}


@pytest.mark.parametrize("edit", EDITS)
@in_one_colour
@on_valkey
def test_an_edit_is_stored_as_what_it_changes(make_saver: MakeSaver, raw: redis.Redis, edit: str) -> None:
    before, after, most = EDITS[edit]
    s, chat = make_saver(), Chat()
    for value in (before, after):
        chat.put(s, value)
    (record,) = deltas(raw)
    assert len(record) < most
    chat.check(s, make_saver())


@pytest.mark.parametrize("value", [[], None, "", 5, {"other": "thing"}, "y" * 900, list("reversed")], ids=repr)
@in_one_colour
@on_valkey
def test_what_has_nothing_in_common_is_stored_whole(make_saver: MakeSaver, raw: redis.Redis, value: Any) -> None:
    s, chat = make_saver(), Chat()
    for each in (LONG, value, LONG, [*LONG, *LONG]):
        chat.put(s, each)
    assert len(stored(raw)) == 4
    chat.check(s, make_saver())


def test_workers_in_turn_go_on_from_each_other(make_saver: MakeSaver, raw: redis.Redis) -> None:
    one, two, chat = make_saver(), make_saver(), Chat()
    for n in range(1, 36):  # past number 32, which is a step of another kind
        s = two if n % 2 else one
        s.get_tuple(cfg())
        chat.put(s, messages(5 + n))
    assert len(deltas(raw)) >= 32
    chat.check(one, two, make_saver(), make_saver(cache_bytes=0))


def test_time_travel_and_forks_from_the_middle(make_saver: MakeSaver, raw: redis.Redis) -> None:
    one, two, chat = make_saver(), make_saver(), Chat()
    chat.turns(one, 8)
    for s, parent in ((one, 3), (two, 3), (one, 8), (two, 5)):
        found = values(s.get_tuple(cfg("t", "", name(parent))))["v"]
        chat.put(s, [*found, HumanMessage("fork", id="fork")], parent)
    assert len(deltas(raw)) >= 10
    chat.check(one, two, make_saver())


@pytest.mark.parametrize("options", [{"cache_bytes": 0}, {"cache_bytes": 900}, "encrypted"], ids=str)
def test_what_is_stored_whole_by_its_nature(make_saver: MakeSaver, raw: redis.Redis, options: Any) -> None:
    if options == "encrypted":
        options = {"serde": EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")}
    s = make_saver(**options)
    chat = Chat().turns(s, 4)
    assert not deltas(raw)
    chat.check(s, make_saver(**options))


class Plain:
    """What only pickle can store."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and self.n == other.n

    __hash__ = None  # type: ignore[assignment]


def test_pickled_values(make_saver: MakeSaver, raw: redis.Redis) -> None:
    serde = JsonPlusSerializer(pickle_fallback=True)
    s, chat = make_saver(serde=serde), Chat()
    for n in range(1, 40):
        chat.put(s, {"x" * 300, *range(n)} if n % 3 else [Plain(k) for k in range(9 * n)])
    chat.check(s, make_saver(serde=serde))


def test_versions_that_repeat_are_never_known(make_saver: MakeSaver, raw: redis.Redis) -> None:
    one, two = make_saver(), make_saver()
    for at, text in enumerate(("a" * 900, "a" * 901, "b" * 901)):
        for n in (1, 2):
            put((one, two)[(n + at) % 2], n, vers={"v": n}, v=text + str(n))
            for reader in (one, two):
                assert values(reader.get_tuple(cfg("t", "", IDS[n])))["v"] == text + str(n)
                assert [values(found)["v"][-1] for found in reader.list(cfg())][-1] == "1"
    assert not deltas(raw)


def test_bytes_that_the_caller_changes_afterwards(make_saver: MakeSaver) -> None:
    s, chat, value = make_saver(), Chat(), bytearray(b"x" * 900)
    for n in range(4):
        value[n] = n
        chat.put(s, value)
    chat.check(s, make_saver())


# Bases that are gone before the next put.


def expire_all(raw: redis.Redis) -> None:
    for key in keys_of("t"):
        raw.pexpireat(key, 1)


GONE: dict[str, Callable[[Facade, Any, Chat], Any]] = {
    "deleted": lambda other, raw, chat: other.delete_thread("t"),
    "its run deleted": lambda other, raw, chat: other.delete_for_runs(["last"]),
    "expired": lambda other, raw, chat: expire_all(raw),
    "evicted": lambda other, raw, chat: raw.delete(BLOBS),
    "lost": lambda other, raw, chat: raw.hdel(BLOBS, chat.ref(chat.n), GS + chat.ref(chat.n)),
    "replaced": lambda other, raw, chat: raw.hset(BLOBS, GS + chat.ref(chat.n), b"2d something else"),
}


@damages
@pytest.mark.parametrize("how", GONE)
@on_real_servers
def test_a_base_that_is_gone_costs_one_more_trip_and_no_value(
    behind: Facade, make_saver: MakeSaver, raw: redis.Redis, proxy: Proxy, how: str
) -> None:
    chat = Chat().turns(behind, 3)
    put(
        behind,
        name(9),
        parent=name(3),
        vers={"v": next_version(chat.stored[3][0])},
        v=messages(9),
        meta={"run_id": "last"},
    )
    found = values(behind.get_tuple(cfg()))["v"]
    (version,) = (behind.get(cfg()) or {"channel_versions": {}})["channel_versions"].values()
    chat.stored[9] = version, found
    GONE[how](make_saver(), raw, chat)
    with proxy.measure() as counts:
        chat.put(behind, messages(11))
    assert counts.trips == 2
    assert GS + chat.ref(10) not in stored(raw)
    for s in (behind, make_saver()):
        assert values(s.get_tuple(cfg()))["v"] == messages(11)
    with proxy.measure() as counts:
        chat.put(behind, messages(12))
    assert (counts.trips, GS + chat.ref(11) in stored(raw)) == (1, True)
    assert values(make_saver().get_tuple(cfg()))["v"] == messages(12)


def test_a_thread_made_anew_under_its_old_id(make_saver: MakeSaver) -> None:
    one, two = make_saver(), make_saver()
    chat = Chat().turns(one, 4)
    two.get_tuple(cfg())
    two.delete_thread("t")
    again = Chat()
    again.stored[0] = chat.stored[4]
    again.put(one, messages(10))  # a slow worker goes on
    again.put(two, messages(11))
    again.put(one, messages(12))
    del again.stored[0]
    again.check(one, two, make_saver())
    for s in (one, two):
        s.delete_thread("t")
        Chat().turns(s, 3).check(one, two, make_saver())  # versions begin anew


def test_a_copy_stands_alone(make_saver: MakeSaver, raw: redis.Redis) -> None:
    s, other = make_saver(), make_saver()
    chat = Chat().turns(s, 5)
    s.copy_thread("t", "u")
    assert stored(raw, "u") == stored(raw)
    s.delete_thread("t")
    chat.t = "u"
    chat.check(s, other)
    chat.turns(other, 3).turns(s, 3).check(s, other, make_saver())


# Damage.


def flip(record: bytes) -> bytes:
    return record[:-1] + bytes([record[-1] ^ 1])


def whole_kind(record: bytes) -> bytes:
    return b"1fpickle" + record[record.index(US) :]


Hurt = Callable[[Any, Chat], Any]


def change(n: int, how: Callable[[bytes], bytes]) -> Hurt:
    """Change what stands at version `n` of the chain; 1 is whole."""

    def hurt(raw: Any, chat: Chat) -> None:
        field = chat.ref(n) if n == 1 else GS + chat.ref(n)
        raw.hset(BLOBS, field, how(raw.hget(BLOBS, field)))

    return hurt


DAMAGES: dict[str, Hurt] = {
    "the value is gone": lambda raw, chat: raw.hdel(BLOBS, GS + chat.ref(5)),
    "a link is gone": lambda raw, chat: raw.hdel(BLOBS, GS + chat.ref(3)),
    "the first is gone": lambda raw, chat: raw.hdel(BLOBS, chat.ref(1)),
    "a link is shorter": change(3, lambda record: record[:-5]),
    "the first is shorter": change(1, lambda record: record[:-5]),
    "a link is changed": change(3, flip),
    "the first is changed": change(1, flip),
    "the first is of another type": change(1, whole_kind),
    "the first is no value": change(1, lambda record: b"1e"),
    "a link is noise": change(3, lambda record: b"2dnoise"),
    "a link has no base": change(3, lambda record: record.replace(US, b"?")),
    "a link is built on itself": lambda raw, chat: change(
        3, lambda record: record.replace(chat.ref(2).rpartition(US)[2], chat.ref(3).rpartition(US)[2])
    )(raw, chat),
    "a link is built on a later one": lambda raw, chat: change(
        3, lambda record: record.replace(chat.ref(2).rpartition(US)[2], chat.ref(4).rpartition(US)[2])
    )(raw, chat),
    "the numbers are odd": change(4, lambda record: record.replace(b",", b",9", 1)),
}


@damages
@in_one_colour
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_in_a_chain_is_told(make_saver: MakeSaver, raw: redis.Redis, damage: str) -> None:
    chat = Chat().turns(make_saver(), 5)
    put(make_saver(), name(6), parent=name(5), vers={"other": 1}, other=1)
    DAMAGES[damage](raw, chat)
    fresh: list[Callable[[], Any]] = [
        lambda: make_saver().get_tuple(cfg("t", "", name(5))),
        lambda: make_saver().list(cfg(), before=cfg("t", "", name(6))),
        lambda: make_saver().get_delta_channel_history(config=cfg("t", "", name(6)), channels=["v"]),
    ]
    for call in fresh:
        with pytest.raises(DamagedCheckpointError) as told:
            call()
        assert (told.value.checkpoint_id, told.value.channels) == (name(5), ("v",))
    assert values(make_saver().get_tuple(cfg()))["other"] == 1


@damages
def test_what_a_worker_knows_does_not_hide_that_a_value_is_gone(make_saver: MakeSaver, raw: redis.Redis) -> None:
    s = make_saver()
    chat = Chat().turns(s, 4)
    raw.hdel(BLOBS, chat.ref(1))
    assert values(s.get_tuple(cfg()))["v"] == chat.stored[4][1]  # it is there, and known
    for n in (4, 1):
        raw.hdel(BLOBS, GS + chat.ref(n))
        with pytest.raises(DamagedCheckpointError) as told:
            s.get_tuple(cfg("t", "", name(n)))
        assert told.value.channels == ("v",)


def test_a_seed_that_is_a_delta(make_saver: MakeSaver) -> None:
    s = make_saver()
    chat = Chat().turns(s, 4)
    put(s, name(5), parent=name(4), vers={"other": 1}, other=1)
    for reader in (s, make_saver()):
        history = reader.get_delta_channel_history(config=cfg("t", "", name(5)), channels=["v"])
        assert history["v"] == {"writes": [], "seed": chat.stored[4][1]}
