"""What deltas are for, in bytes: sent, received, stored, counted, and held by a worker."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Annotated, Any

import pytest
import redis
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph, add_messages
from typing_extensions import TypedDict

from redis_ckpt import AsyncRedisSaver
from redis_ckpt._versions import next_version
from tests.audit import dump
from tests.integration.graphs import DURABILITIES, Durability, thread
from tests.integration.test_delta_chains import Chat, deltas, messages, name, stored
from tests.profiles import by_profile
from tests.property.compare import keys_of, size_of
from tests.proxy import Proxy
from tests.savers import Facade, MakeSaver, arguments, cfg, in_one_colour, on_valkey, put, values
from tests.servers import Server, on_real_servers

TEXT = 650  # bytes of a message, as in a chat
A_TRIP = 2_000  # bytes of names and entries that go with a checkpoint
MOST_LINKS = 31 + 63
CACHE_BYTES = 1_000_000
WORKER_BYTES = 7 * 2**20  # of a worker beside its cache: names that it quoted lately, connections, what is under way
THREADS = by_profile(2_000, 10_000)


@pytest.fixture
def behind(make_saver: MakeSaver, proxy: Proxy) -> list[Facade]:
    """Two workers behind the proxy; connections and scripts are there."""
    made = [make_saver(redis_url=proxy.url) for _ in range(2)]
    for saver in made:
        saver.setup()
        saver.get_tuple(cfg("other"))
    return made


@on_real_servers
def test_a_read_brings_only_what_is_new(behind: list[Facade], make_saver: MakeSaver, proxy: Proxy) -> None:
    chat, (reader, _), writer = Chat(), behind, make_saver()
    chat.put(writer, messages(300, size=TEXT))
    received = []
    for n in (300, 300, 301, 301):
        if n > len(chat.stored[chat.n][1]):
            writer.get_tuple(cfg())
            chat.put(writer, messages(n, size=TEXT))
        with proxy.measure() as counts:
            assert values(reader.get_tuple(cfg()))["v"] == messages(n, size=TEXT)
        assert counts.trips == 1
        received.append(counts.bytes_down)
    first, again, new, last = received
    assert first > 200_000
    assert again < 5_000
    assert last < 5_000
    assert new < again + TEXT + 500


@on_real_servers
def test_two_workers_in_turn_send_what_is_new(behind: list[Facade], proxy: Proxy) -> None:
    chat, sent = Chat(), list[int]()
    for n in range(1, 131):
        worker = behind[n % 2]
        with proxy.measure() as counts:
            found = worker.get_tuple(cfg())
            assert found is None or len(values(found)["v"]) == n - 1
            chat.put(worker, messages(n, size=TEXT))
        assert counts.trips == 2
        sent.append(counts.bytes_up + counts.bytes_down)
    # Each sees both its own message and the other's; every 32nd is stored with all since the 32nd before it.
    early, late = sent[8:24], sent[100:116]
    assert sum(late) < 1.3 * sum(early)
    assert max(late) < 2 * TEXT + 2 * A_TRIP
    assert max(sent) < 40 * (TEXT + 300) + 2 * A_TRIP


@in_one_colour
@on_valkey
def test_long_appends_stay_linear(make_saver: MakeSaver, raw: redis.Redis) -> None:
    s, chat, size = make_saver(), Chat(), dict[int, int]()
    for n in range(1, 401):
        chat.put(s, [str(k).rjust(TEXT) for k in range(n)])
        size[n] = sum(map(len, stored(raw).values())) if n in (100, 200, 400) else 0
    assert size[200] < 2.2 * size[100]
    assert size[400] < 2.2 * size[200]
    assert size[400] < 3 * 400 * TEXT
    found = make_saver().list(cfg(), limit=40)
    assert [len(values(each)["v"]) for each in found] == [*range(400, 360, -1)]


@in_one_colour
@on_valkey
@pytest.mark.parametrize("how", ["append", "window"])
def test_of_few_checkpoints_little_is_left(make_saver: MakeSaver, raw: redis.Redis, how: str) -> None:
    s, chat = make_saver(keep_last=1), Chat()
    for n in range(1, 251):
        chat.put(s, [f"message {k}".ljust(150, ".") for k in range(n if how == "window" else 0, n + 20)])
        if n % 50 == 0:
            s.prune(["t"])
            assert len(stored(raw)) <= MOST_LINKS + 1
    whole = len(s.raw_saver.serde.dumps_typed(chat.stored[chat.n][1])[1])
    assert sum(map(len, stored(raw).values())) < (3 if how == "append" else 40) * whole
    assert values(make_saver().get_tuple(cfg()))["v"] == chat.stored[chat.n][1]


def test_what_is_counted_is_what_is_stored(make_saver: MakeSaver, raw: redis.Redis) -> None:
    s, other = make_saver(), make_saver()
    chat = Chat().turns(s, 12)
    chat.put(s, messages(30), parent=4)
    put(other, name(13), parent=name(4), vers={"v": chat.stored[13][0]}, v=messages(30))  # again, by another: whole
    Chat("u").turns(s, 3)
    assert len(deltas(raw)) == 11
    for t in ("t", "u"):
        stats = s.stats(t)
        assert stats is not None
        assert stats.blobs.count == len(stored(raw, t))
        assert stats.blobs.bytes == size_of({b"": stored(raw, t)})
        assert stats.bytes == size_of(dump(raw), keys_of(t))
    for some, keep_last in ((["t"], 3), (["t"], 1), (None, 1)):
        before = dump(raw)
        report = s.sweep(some, keep_last=keep_last)
        assert report.bytes_freed == size_of(before) - size_of(dump(raw))
        assert report.blobs == sum(len(before[k]) - len(dump(raw)[k]) for k in before if k.endswith(b":blobs"))
    total = s.stats()
    assert total.bytes == size_of(dump(raw))
    assert total.blobs.count == len(stored(raw)) + len(stored(raw, "u"))


def test_a_prune_leaves_the_bases_of_what_stays(make_saver: MakeSaver, raw: redis.Redis) -> None:
    s, chat = make_saver(), Chat()
    chat.turns(s, 5)
    chat.put(s, ["something", "else"])  # whole: nothing needs the five
    s.prune(["t"])
    assert len(stored(raw)) == 1
    chat.turns(s, 4)
    s.prune(["t"])
    assert len(stored(raw)) == 4
    assert values(make_saver().get_tuple(cfg()))["v"] == chat.stored[chat.n][1]
    s.delete_thread("t")
    assert not dump(raw)


@pytest.mark.parametrize("by", ["whole", "delta"])
def test_a_value_that_is_put_again_otherwise_leaves_no_base(make_saver: MakeSaver, raw: redis.Redis, by: str) -> None:
    """Another worker, which knows less, puts a checkpoint once more when its base stays for nothing else."""
    s, other, chat = make_saver(), make_saver(), Chat()
    chat.turns(s, 2)
    if by == "delta":
        other.get_tuple(cfg("t", "", name(1)))
    chat.turns(s, 1)
    s.prune(["t"])
    assert len(stored(raw)) == 3
    version, value = chat.stored[3]
    put(other, name(3), parent=name(2), vers={"v": version}, v=value)
    s.prune(["t"])
    assert len(stored(raw)) == (1 if by == "whole" else 2)
    assert values(make_saver().get_tuple(cfg()))["v"] == value


# Real chats.


class ChatState(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def text(n: int, who: str) -> str:
    return f"{who} says {n}: ".ljust(TEXT, "abcdefghijklmnopqrstuvwxyz"[n % 26])


def chat_graph(saver: Any) -> Any:
    def answer(state: ChatState) -> dict[str, Any]:
        return {"messages": [AIMessage(text(len(state["messages"]), "model"), id=f"a{len(state['messages'])}")]}

    return StateGraph(ChatState).add_node(answer).add_edge(START, "answer").compile(checkpointer=saver)


@in_one_colour
@on_valkey
def test_a_chat_of_200_turns(behind: list[Facade], make_saver: MakeSaver, raw: redis.Redis, proxy: Proxy) -> None:
    graph, sent = chat_graph(behind[0].raw_saver), list[int]()
    for n in range(200):
        with proxy.measure() as counts:
            state = graph.invoke({"messages": [HumanMessage(text(n, "user"), id=f"h{n}")]}, thread())
        sent.append(counts.bytes_up)
    said = sum(len(message.content) for message in state["messages"])
    assert said == 400 * TEXT
    assert size_of(dump(raw)) <= 6 * said
    assert sum(sent[180:]) <= 2 * sum(sent[5:25])
    assert sorted(sent)[100] <= 2 * sent[9]
    found = values(make_saver().get_tuple(cfg()))["messages"]
    assert found == state["messages"]


@pytest.mark.parametrize("durability", DURABILITIES)
@in_one_colour
@on_valkey
def test_a_chat_of_two_workers_in_each_durability(
    make_saver: MakeSaver, raw: redis.Redis, durability: Durability
) -> None:
    workers, model = [chat_graph(make_saver().raw_saver) for _ in range(2)], chat_graph(InMemorySaver())
    for n in range(20):
        said = {"messages": [HumanMessage(text(n, "user"), id=f"h{n}")]}
        answers = [g.invoke(said, thread(), durability=durability) for g in (workers[n % 2], model)]
        assert answers[0] == answers[1]
    assert len(deltas(raw)) >= 15
    histories = [[s.values for s in g.get_state_history(thread())] for g in (workers[0], model)]
    assert histories[0] == histories[1]


# Memory.


def held(saver: AsyncRedisSaver) -> int:
    assert saver._copies is not None
    return saver._cache.bytes + saver._copies.size_bytes


@on_valkey
@pytest.mark.timeout(300)
async def test_the_memory_of_a_worker_is_that_of_its_cache(server: Server, raw: redis.Redis) -> None:
    """Of many threads, each with a value, some with a delta and messages, and what comes of reading them."""
    async with AsyncRedisSaver.from_conn_string(str(server.url), cache_bytes=CACHE_BYTES) as saver:

        async def use(t: str) -> None:
            version = next_version(None)
            await saver.aput(*arguments(1, t=t, v="x" * 5_000, vers={"v": version}))
            if t.endswith("7"):
                said = [HumanMessage(text(n, t), id=f"{t}-{n}") for n in range(8)]
                versions = {"v": next_version(version), "said": version}
                await saver.aput(*arguments(2, t=t, parent=1, v="x" * 5_100, said=said, vers=versions))
                assert await saver.aget_tuple(cfg(t)) is not None

        await asyncio.gather(*(use(f"first {n}") for n in range(50)))
        tracemalloc.start()
        try:
            for start in range(0, THREADS, 50):
                await asyncio.gather(*(use(f"thread-{n:05}") for n in range(start, start + 50)))
                assert held(saver) <= CACHE_BYTES
            now, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held(saver) > 0.8 * CACHE_BYTES
    assert now <= CACHE_BYTES + WORKER_BYTES < THREADS * 5_000
    assert peak <= CACHE_BYTES + 2 * WORKER_BYTES
    raw.flushall()  # the audit need not look at them all


def test_a_version_that_comes_again_with_a_small_value_is_not_read_as_the_former(saver: Facade) -> None:
    """No saver gives a version twice, but a put of an id may be repeated with another value."""
    versions = {"a": 2**29 + 1}
    for value in (["x" * 1000], None, ["y" * 1000], 7):
        put(saver, 1, a=value, vers=versions)
        assert values(saver.get_tuple(cfg())) == {"a": value}
