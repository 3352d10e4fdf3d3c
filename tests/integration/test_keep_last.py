"""A saver with keep_last: a bounded history that a run never notices."""

from __future__ import annotations

import logging
import operator
from typing import Annotated, Any

import pytest
import redis
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from redis_ckpt import DamagedCheckpointError
from redis_ckpt._keys import thread_keys
from redis_ckpt._ops.retain import slack
from tests.integration.graphs import Play, thread
from tests.proxy import Proxy
from tests.savers import Facade, MakeSaver, cfg, in_one_colour, on_valkey, put, values, writes

KEYS = thread_keys(b"ckpt", "t")


def step(s: Facade, n: int, **kwargs: Any) -> None:
    """One step of a run: a checkpoint with a value of its own and one that never changes, and a pending write."""
    ns = kwargs.get("ns", "")
    put(s, f"{n:06}", parent=f"{n - 1:06}" if n else None, vers={"n": n + 1, "same": 1}, n=n, same="same", **kwargs)
    s.put_writes(cfg(kwargs.get("t", "t"), ns, f"{n:06}"), [("x", n)], "task")


def numbers(s: Facade, t: str = "t", ns: str = "") -> list[int]:
    """The steps that are left, oldest first; each must be whole."""
    found = s.list(cfg(t, ns))
    assert all(values(item)["same"] == "same" for item in found)
    assert all(writes(item) in ([], [("task", "x", values(item)["n"])]) for item in found)
    return [values(item)["n"] for item in reversed(found)]


@pytest.mark.parametrize("most", [1, 2, 3, 20])
@on_valkey
@in_one_colour
def test_the_newest_stay_and_never_more_than_the_slack_beside_them(
    make_saver: MakeSaver, raw: redis.Redis, most: int
) -> None:
    s, counts = make_saver(keep_last=most), set()
    for n in range(2 * most + 15):
        step(s, n)
        left = numbers(s)
        counts.add(len(left))
        assert left == list(range(n + 1))[-len(left) :]
        assert min(most, n + 1) <= len(left) <= most + slack(most)
        assert raw.hlen(KEYS.blobs) == len(left) + 1
        assert raw.hlen(KEYS.writes) == raw.zcard(KEYS.pending) == len(left)
    assert counts == set(range(1, most + slack(most) + 1))  # several went at once


def test_every_colour_and_server_retains(make_saver: MakeSaver, raw: redis.Redis) -> None:
    s = make_saver(keep_last=2, ttl=1000)
    for n in range(30):
        step(s, n)
    left = numbers(s)
    assert 2 <= len(left) <= 6
    assert left[-1] == 29
    assert raw.zcard(KEYS.order) == len(left)


@on_valkey
@in_one_colour
def test_each_namespace_keeps_its_own(make_saver: MakeSaver) -> None:
    s = make_saver(keep_last=3)
    for n in range(30):
        step(s, n)
        if n < 5:
            step(s, n, ns="sub")
    assert 3 <= len(numbers(s)) <= 7
    assert numbers(s, ns="sub") == [2, 3, 4]
    for n in range(5, 40):
        step(s, n, ns="sub")
        assert numbers(s)[-3:] == [27, 28, 29]
        memory = numbers(s, ns="sub")
        assert memory[-3:] == [n - 2, n - 1, n]
        assert len(memory) <= 3 + 2 + slack(3)  # beside the newest what it remembered at the two older roots
    step(s, 0, t="other")
    assert numbers(s, "other") == [0]


@on_valkey
@in_one_colour
def test_calls_of_subgraphs_go_with_their_roots(make_saver: MakeSaver) -> None:
    s = make_saver(keep_last=2)
    for n in range(30):
        step(s, n)
        step(s, n, ns=f"call:{n}", meta={"parents": {"": f"{n:06}"}})
    (info,) = s.threads()
    assert set(info.namespaces) <= {""} | {f"call:{n}" for n in range(23, 30)}
    assert {"", "call:28", "call:29"} <= set(info.namespaces)


@on_valkey
@in_one_colour
def test_a_saver_that_keeps_one_stays_of_one_size_over_a_thousand_steps(
    make_saver: MakeSaver, raw: redis.Redis
) -> None:
    s, sizes, memory = make_saver(keep_last=1), [], []
    for n in range(1000):
        step(s, n, fat="x" * 1000)
        counts = [raw.hlen(key) for key in KEYS[:3]] + [raw.zcard(key) for key in KEYS[3:]]
        sizes.append(counts)
        if n % 5 == 4:
            memory.append(sum(int(raw.memory_usage(key, samples=0) or 0) for key in KEYS))
    most = 1 + slack(1)
    assert [max(each) for each in zip(*sizes, strict=True)] == [most + 1, most + 1, most, most, most]
    assert max(memory[100:]) <= max(memory[:100]) * 1.05
    assert numbers(s)[-1] == 999


def test_a_checkpoint_that_is_put_again_makes_no_more_of_them(make_saver: MakeSaver) -> None:
    s = make_saver(keep_last=2)
    for _ in range(12):
        for n in range(3):
            step(s, n)
    assert numbers(s) == [0, 1, 2]


def delta_step(s: Facade, n: int, snapshot: bool = False) -> None:
    """A step of a delta channel: its value is rebuilt from the writes of its ancestors, down to a snapshot."""
    meta = {} if snapshot else {"counters_since_delta_snapshot": {"log": [1, 1]}}
    held = {"log": [n]} if snapshot else {}
    put(s, f"{n:06}", parent=f"{n - 1:06}" if n else None, meta=meta, vers={"log": n + 1, "n": n + 1}, n=n, **held)
    s.put_writes(cfg("t", "", f"{n:06}"), [("log", n)], "task")


@on_valkey
@in_one_colour
def test_what_delta_channels_need_stays_and_is_not_planned_for_each_time(
    make_saver: MakeSaver, raw: redis.Redis, proxy: Proxy
) -> None:
    s = make_saver(keep_last=1, redis_url=proxy.url)
    s.setup()
    trips: list[int] = []
    for n in range(80):
        with proxy.measure() as counts:
            delta_step(s, n, snapshot=n == 0)
        trips.append(counts.trips)
    assert len(s.list(cfg())) <= 1 + slack(1)  # nobody sees more
    assert raw.zcard(KEYS.order) == raw.hlen(KEYS.writes) == 80
    assert sum(trip > 2 for trip in trips) <= 80 // (slack(1) + 1)
    history = s.get_delta_channel_history(config=cfg(), channels=["log"])["log"]
    assert history["seed"] == [0]
    assert [write[2] for write in history["writes"]] == list(range(79))
    for n in range(80, 100):
        delta_step(s, n, snapshot=n == 80)
    delta_step(s, 100, snapshot=True)
    for n in range(101, 110):
        delta_step(s, n, snapshot=True)
    assert raw.zcard(KEYS.order) <= 1 + slack(1)  # what is no longer needed does not stay
    s.close()


@on_valkey
@in_one_colour
def test_what_a_memory_needs_is_not_planned_for_each_time_either(make_saver: MakeSaver, proxy: Proxy) -> None:
    """A subgraph with a memory of its own keeps, beside its newest, what older roots look for."""
    s = make_saver(keep_last=2, redis_url=proxy.url)
    s.setup()
    trips: list[int] = []
    for n in range(100):
        with proxy.measure() as counts:
            step(s, 10 * n)
            step(s, 10 * n + 1, ns="sub")
        trips.append(counts.trips)
    roots, memory = numbers(s), numbers(s, ns="sub")
    assert len(roots) <= 2 + slack(2)
    assert {root - 9 for root in roots[-2:]} < set(memory)
    assert len(memory) <= 2 + 1 + slack(2)
    assert sum(trips) <= 4 * 100 + 2 * 2 * 100 // slack(2)
    s.close()


@on_valkey
@in_one_colour
def test_one_removal_serves_several_puts(make_saver: MakeSaver, proxy: Proxy) -> None:
    assert [slack(most) for most in (1, 19, 20, 40, 100)] == [4, 4, 5, 10, 25]
    for most in (1, 40):
        s = make_saver(keep_last=most, redis_url=proxy.url, prefix=f"ckpt{most}")
        s.setup()
        trips = []
        for n in range(120):
            with proxy.measure() as counts:
                put(s, f"{n:06}", parent=f"{n - 1:06}" if n else None, vers={"n": n + 1}, n=n)
            trips.append(counts.trips)
        assert set(trips) == {1, 3}  # the put; the heads, and what goes
        removals = trips.count(3)
        assert removals == (120 - most) // (slack(most) + 1)
        assert 1 in trips[-(slack(most) + 1) :]
        s.close()


@pytest.mark.unaudited("damage is made on purpose")
@on_valkey
def test_a_damaged_thread_goes_on_and_says_so_in_the_log(
    make_saver: MakeSaver, raw: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    s = make_saver(keep_last=1)
    for n in range(3):
        step(s, n)
    raw.hdel(KEYS.checkpoints, b"\x1f000001")
    with caplog.at_level(logging.WARNING, "redis_ckpt"):
        for n in range(3, 20):
            step(s, n)
    assert values(s.get_tuple(cfg()))["n"] == 19
    assert caplog.records
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert all("keep_last=1" in record.getMessage() for record in caplog.records)
    assert "'t'" in caplog.records[0].getMessage()
    with pytest.raises(DamagedCheckpointError):
        s.list(cfg())
    assert raw.zcard(KEYS.order) == 20  # nothing was removed by guess


@on_valkey
@in_one_colour
def test_a_run_without_damage_logs_nothing(make_saver: MakeSaver, caplog: pytest.LogCaptureFixture) -> None:
    s = make_saver(keep_last=1)
    with caplog.at_level(logging.INFO, "redis_ckpt"):
        for n in range(20):
            step(s, n)
    assert caplog.records == []


@on_valkey
def test_clones_retain_together(make_saver: MakeSaver) -> None:
    s = make_saver(keep_last=2, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    clone = s.with_allowlist([("tests.savers", "Facade")])
    assert clone.raw_saver is not s.raw_saver
    for n in range(20):
        step(clone if n % 2 else s, n)
        assert len(numbers(s)) <= 2 + slack(2)
    for n in range(20, 30):
        step(clone, n)
        assert len(numbers(s)) <= 2 + slack(2)
    assert numbers(s)[-2:] == [28, 29]


@on_valkey
@in_one_colour
def test_savers_without_a_limit_and_with_another_may_share_a_thread(make_saver: MakeSaver) -> None:
    plain, few, many = make_saver(), make_saver(keep_last=1), make_saver(keep_last=100)
    for n in range(30):
        step(many if n % 2 else plain, n)
    assert len(numbers(plain)) == 30
    step(few, 30)
    assert numbers(plain) == [30]


class Log(TypedDict):
    log: Annotated[list[Any], operator.add]


@on_valkey
@in_one_colour
def test_a_graph_runs_asks_and_resumes_with_one_checkpoint(make_saver: MakeSaver) -> None:
    inner = StateGraph(Log)
    inner.add_node("ask", lambda state: {"log": [interrupt("go on?")]})
    inner.add_edge(START, "ask")
    builder = StateGraph(Log)
    builder.add_node("first", lambda state: {"log": ["first"]})
    builder.add_node("inner", inner.compile())
    builder.add_node("last", lambda state: {"log": ["last"]})
    builder.add_edge(START, "first")
    builder.add_edge("first", "inner")
    builder.add_edge("inner", "last")
    s = make_saver(keep_last=1)
    play = Play(s)
    app = play.app(builder)
    for n in range(8):
        play.invoke(app, {"log": [n]}, thread(), durability="sync")
        asked = play.state(app, thread())
        assert [i.value for i in asked.interrupts] == ["go on?"]
        done = play.invoke(app, Command(resume=f"yes {n}"), thread(), durability="sync")
        # the subgraph hands its whole log back
        assert done["log"][-2:] == [f"yes {n}", "last"]
    assert len(s.list(cfg())) <= 1 + slack(1)
