"""Round trips, counted at the socket: one for each operation, however much it carries."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.types import Command

from redis_ckpt._ops.retain import slack
from tests.integration.graphs import Play, thread
from tests.integration.test_graphs_interrupts import after, approve, before, line
from tests.proxy import Proxy
from tests.savers import IDS, Facade, cfg, put, values, writes
from tests.servers import on_real_servers

if TYPE_CHECKING:
    from tests.conftest import MakeSaver

pytestmark = on_real_servers
PAGE = 16


@pytest.fixture
def saver(make_saver: MakeSaver, proxy: Proxy) -> Iterator[Facade]:
    """A saver behind the proxy that has done each operation once, so connection and scripts are there."""
    made = make_saver(redis_url=proxy.url)
    put(made, 1, t="warm", a=1)
    put(made, 2, t="warm", parent=1, a=2, meta={"run_id": "warm"})
    made.put_writes(cfg("warm", "", IDS[2]), [("x", 1)], "task")
    made.get_tuple(cfg("warm"))
    made.list(cfg("warm"))
    made.get_delta_channel_history(config=cfg("warm"), channels=["a"])
    made.delete_thread("warm")
    yield made
    made.close()


@pytest.fixture
def trips(proxy: Proxy) -> Callable[[Callable[[], Any]], int]:
    def count(call: Callable[[], Any]) -> int:
        with proxy.measure() as counts:
            call()
        return counts.trips

    return count


Trips = Callable[[Callable[[], Any]], int]


def many(s: Facade, checkpoints: int) -> None:
    for n in range(checkpoints):
        put(s, f"{n:04}", parent=f"{n - 1:04}" if n else None, vers={"a": n + 1}, a=n)


def test_put_is_one(saver: Facade, trips: Trips) -> None:
    assert trips(lambda: put(saver, 1, a=1, b="two")) == 1
    assert trips(lambda: put(saver, 2, parent=1, a=2, b="three", meta={"run_id": "r", "user": "u"})) == 1
    # A channel that is not new is only named, as LangGraph does it in every step.
    versions = {"a": "0", "b": "1"}
    put(saver, 3, parent=2, a=1, b=1, vers=versions)
    assert trips(lambda: put(saver, 4, parent=3, a=1, b=1, vers=versions, new={})) == 1


def test_put_writes_is_one(saver: Facade, trips: Trips) -> None:
    put(saver, 1, a=1)
    config = cfg("t", "", IDS[1])
    assert trips(lambda: saver.put_writes(config, [("x", 1)], "task")) == 1
    assert trips(lambda: saver.put_writes(config, [("x", 1), ("__interrupt__", 2), ("__resume__", 3)], "task")) == 1
    assert trips(lambda: saver.put_writes(config, [("x", n) for n in range(500)], "many")) == 1


def test_get_tuple_is_one(saver: Facade, trips: Trips) -> None:
    many(saver, 3)
    assert trips(lambda: saver.get_tuple(cfg())) == 1
    assert trips(lambda: saver.get_tuple(cfg("t", "", "0001"))) == 1
    assert trips(lambda: saver.get_tuple(cfg("nobody"))) == 1
    assert trips(lambda: saver.get(cfg())) == 1


def test_list_is_one_a_page(saver: Facade, trips: Trips) -> None:
    many(saver, 2 * PAGE + 8)
    for limit, expected in ((None, 3), (1, 1), (10, 1), (PAGE, 1), (PAGE + 1, 2), (2 * PAGE, 2), (100, 3)):
        assert trips(lambda limit=limit: saver.list(cfg(), limit=limit)) == expected  # type: ignore[misc]
        assert trips(lambda limit=limit: saver.list(thread(), limit=limit)) == expected  # type: ignore[misc]
        assert len(saver.list(cfg(), limit=limit)) == min(limit or 100, 2 * PAGE + 8)


def test_the_first_item_of_a_list_costs_one_page(saver: Facade, trips: Trips) -> None:
    many(saver, 5 * PAGE)

    async def first(items: Any) -> Any:
        found = await items.__anext__()
        await items.aclose()
        return found

    def take() -> Any:
        if saver.is_async:
            return saver.loop.run(first(saver.raw_saver.alist(cfg())))
        return next(saver.raw_saver.list(cfg()))

    assert trips(take) == 1


def test_delete_thread_is_one(saver: Facade, trips: Trips) -> None:
    many(saver, 40)
    put(saver, 1, ns="sub:1", a=1)
    saver.put_writes(cfg("t", "", IDS[1]), [("x", 1)], "task")
    assert trips(lambda: saver.delete_thread("t")) == 1
    assert trips(lambda: saver.delete_thread("t")) == 1


def test_history_of_delta_channels_is_one(saver: Facade, trips: Trips) -> None:
    many(saver, 40)
    channels = ["a", "b", "c"]
    assert trips(lambda: saver.get_delta_channel_history(config=cfg(), channels=channels)) == 1
    assert trips(lambda: saver.get_delta_channel_history(config=cfg(), channels=[])) == 0


def test_expire_and_persist_are_one(saver: Facade, trips: Trips) -> None:
    many(saver, 20)
    put(saver, 1, ns="sub:1", a=1)
    saver.put_writes(cfg("t", "", IDS[1]), [("x", 1)], "task")
    for call in (saver.persist, lambda t: saver.expire(t, 60), lambda t: saver.expire(t, None)):
        call("t")  # loads the script
        assert trips(partial(call, "t")) == 1
        assert trips(partial(call, "nobody")) == 1


def test_a_deadline_costs_nothing_on_top(make_saver: MakeSaver, proxy: Proxy, trips: Trips) -> None:
    timed = make_saver(redis_url=proxy.url, ttl=1000, refresh_on_read=True)
    timed.setup()
    for n in range(5):
        config = cfg("t", "", IDS[n])
        assert trips(partial(timed.put_writes, config, [("x", 1)], "early")) == 1
        assert trips(partial(put, timed, n, parent=n - 1 if n else None, a=n, vers={"a": n + 1})) == 1
        assert trips(partial(timed.put_writes, config, [("x", 1)], "task")) == 1
        assert trips(partial(timed.get_tuple, cfg())) == 1
    assert trips(partial(timed.list, cfg())) == 1
    assert trips(partial(timed.get_delta_channel_history, config=cfg(), channels=["a"])) == 1
    timed.close()


def test_a_sweep_is_one_for_a_thread_that_has_nothing_to_lose(saver: Facade, trips: Trips) -> None:
    for n in range(9):
        put(saver, n, parent=n - 1 if n else None, vers={"a": n + 1}, a=n)
        put(saver, n, ns="call:1", a=n)
        saver.put_writes(cfg("t", "", IDS[n]), [("x", 1)], "task")
    saver.setup()
    decades = timedelta(days=365 * 50)
    assert trips(partial(saver.sweep, ["t"])) == 1
    assert trips(partial(saver.sweep, ["nobody"], keep_last=1)) == 1
    assert trips(partial(saver.sweep, ["t"], keep_last=9, older_than=decades, idle_for=decades)) == 1
    assert trips(partial(saver.sweep, ["t"], keep_last=5, dry_run=True)) == 2
    assert trips(partial(saver.sweep, ["t"], keep_last=5)) == 2
    assert trips(partial(saver.sweep, ["t"], keep_last=5)) == 1


def test_an_idle_thread_is_read_counted_and_dropped(saver: Facade, trips: Trips) -> None:
    old = [f"1e0a4b1c-9c1e-6d1{n}-8001-2c1f3b7a9d55" for n in range(5)]
    for n, name in enumerate(old):
        put(saver, name, vers={"a": n}, a=n)
        saver.put_writes(cfg("t", "", name), [("x", n)], "task")
    saver.setup()
    assert trips(partial(saver.sweep, ["t"], idle_for=3600, dry_run=True)) == 2
    assert trips(partial(saver.sweep, ["t"], idle_for=3600)) == 3
    assert saver.threads() == []


@pytest.mark.parametrize("most", [1, 20])
def test_keep_last_costs_less_than_half_a_trip_a_put(
    make_saver: MakeSaver, proxy: Proxy, trips: Trips, most: int
) -> None:
    few = make_saver(redis_url=proxy.url, keep_last=most)
    few.setup()
    spent = trips(partial(many, few, 100))
    removals = (100 - most) // (slack(most) + 1)
    assert spent == 100 + 2 * removals < 150
    assert most <= len(few.list(cfg())) <= most + slack(most)
    few.close()


def test_a_fan_out_costs_no_more(saver: Facade, trips: Trips) -> None:
    """A step of 100 tasks: its state is read in one, and the next step is stored in one."""
    put(saver, 1, a=1)
    for n in range(100):
        saver.put_writes(cfg("t", "", IDS[1]), [("x", n), ("y", str(n) * 1000)], f"task-{n:03}", f"~{n:03}")
    assert trips(lambda: saver.get_tuple(cfg())) == 1
    assert len(writes(saver.get_tuple(cfg()))) == 200
    wide = {f"channel-{n:03}": n for n in range(300)}
    assert trips(lambda: put(saver, 2, parent=1, **wide)) == 1
    assert trips(lambda: saver.get_tuple(cfg())) == 1
    assert values(saver.get_tuple(cfg())) == wide
    assert trips(lambda: saver.list(cfg())) == 1


def test_a_graph_run_sends_what_the_graph_asks_and_nothing_more(saver: Facade, trips: Trips) -> None:
    asked: Counter[str] = Counter()
    prefix = "a" if saver.is_async else ""
    for name in ("get_tuple", "put", "put_writes", "list"):
        _count(saver.raw_saver, prefix + name, asked)
    play = Play(saver)
    app = play.app(line(before, approve, after))

    def run() -> None:
        play.invoke(app, {"log": []}, thread())
        play.invoke(app, Command(resume="yes"), thread())

    spent = trips(run)
    assert spent == sum(asked.values()) or (saver.is_async and spent < sum(asked.values()))  # calls may share a trip
    assert asked[prefix + "get_tuple"] == 2
    assert asked[prefix + "put"] == 5
    assert asked[prefix + "list"] == 0


def _count(saver: Any, name: str, asked: Counter[str]) -> None:
    method = getattr(saver, name)

    @functools.wraps(method)
    def counted(*args: Any, **kwargs: Any) -> Any:
        asked[name] += 1
        return method(*args, **kwargs)

    setattr(saver, name, counted)
