"""What only a hostile look finds: forks, pickled errors, changes between two trips, names that would leak."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage

from redis_ckpt import (
    AsyncRedisSaver,
    CheckpointerError,
    ClosedError,
    DamagedCheckpointError,
    RedisSaver,
    StorageVersionError,
)
from redis_ckpt._scripts import NAMES, script
from redis_ckpt._versions import next_version
from tests.savers import IDS, Facade, MakeSaver, arguments, cfg, ids, put, values
from tests.servers import Server, on_real_servers


@pytest.mark.parametrize("name", NAMES)
def test_no_pattern_makes_a_script_slow_on_long_names(name: str) -> None:
    """An unanchored pattern is tried from every byte: the time would grow with the square of an id's length."""
    for pattern in re.findall(r"string\.match\([^']*'([^']*)'", script(name).text):
        assert pattern.startswith("^"), pattern


def test_very_long_ids_are_stored_and_read(saver: Facade) -> None:
    long = "x" * 100_000
    put(saver, 1, t=long, ns=long, parent=long, a=1, meta={"run_id": long, "parents": {"": long}})
    found = saver.get_tuple(cfg(long, long))
    assert values(found) == {"a": 1}
    assert found is not None
    assert found.parent_config == cfg(long, long, long)


ERRORS = [
    CheckpointerError("text"),
    ClosedError("RedisSaver"),
    StorageVersionError("a record", "9", "1"),
    DamagedCheckpointError("t", "ns", "1", "values are", ["a", "b"]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_errors_pass_from_process_to_process(error: CheckpointerError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def in_child(work: Callable[[], bool]) -> None:
    """Fork, and run `work` in the child, which has 20 seconds."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@on_real_servers
def test_a_forked_child_may_use_the_saver_of_its_parent(server: Server) -> None:
    with RedisSaver(server.url) as blocking:
        put(blocking, 1, a=1)
        in_child(lambda: values(blocking.get_tuple(cfg())) == {"a": 1})
    saver = AsyncRedisSaver(server.url)
    assert values(saver.get_tuple(cfg())) == {"a": 1}  # makes a loop of the saver's own
    in_child(lambda: values(saver.get_tuple(cfg())) == {"a": 1})
    in_child(lambda: values(asyncio.run(saver.aget_tuple(cfg()))) == {"a": 1})
    in_child(lambda: [saver.close()] == [None])  # type: ignore[func-returns-value]
    in_child(lambda: [asyncio.run(saver.aclose())] == [None])

    async def fork_inside() -> None:
        assert values(await saver.aget_tuple(cfg())) == {"a": 1}
        in_child(lambda: values(saver.get_tuple(cfg())) == {"a": 1})
        assert values(await saver.aget_tuple(cfg())) == {"a": 1}

    asyncio.run(fork_inside())
    saver.close()


def meddle_before_trip(saver: RedisSaver, number: int, meddle: Callable[[], None]) -> None:
    """Call `meddle` before the trip of that number, counted from now."""
    send, count = saver._wire.send, iter(range(10_000))

    def meddling(trip: Any) -> Any:
        if next(count) == number:
            meddle()
        return send(trip)

    saver._wire.send = meddling  # type: ignore[method-assign]


@pytest.fixture
def blocking(server: Server) -> RedisSaver:
    saver = RedisSaver(redis_client=server.raw())
    saver.setup()  # so that trips can be counted
    return saver


@pytest.mark.parametrize("config", [cfg(), None], ids=["one thread", "all threads"])
def test_matches_that_vanish_do_not_count(blocking: RedisSaver, server: Server, config: Any) -> None:
    for n in range(1, 10):
        put(blocking, n, meta={"f": 1}, a=n)
    other = RedisSaver(redis_client=server.raw())

    def remove_two_and_change_one() -> None:
        put(other, 7, meta={"f": 2}, a=7)
        headers = {b"\x1f" + IDS[n].encode() for n in (9, 8)}
        from redis_ckpt._flow import Primed, run
        from redis_ckpt._ops.planning import remove_all_but
        from redis_ckpt.policies import Kept

        flow = remove_all_but(other._store, "t", lambda known: Kept(known.headers.keys() - headers, {}))
        run(Primed(flow), other._wire.send)

    meddle_before_trip(blocking, 1 if config else 2, remove_two_and_change_one)
    assert ids(list(blocking.list(config, filter={"f": 1}, limit=2))) == [IDS[6], IDS[5]]


@pytest.mark.unaudited
def test_a_put_does_not_hide_that_the_order_is_lost(saver: Facade, raw: redis.Redis) -> None:
    put(saver, 1, a=1)
    raw.delete("ckpt:{t}:order")
    before = raw.hgetall("ckpt:{t}:checkpoints")
    with pytest.raises(DamagedCheckpointError, match="order"):
        put(saver, 2, parent=1, a=2)
    assert raw.hgetall("ckpt:{t}:checkpoints") == before
    saver.delete_thread("t")
    put(saver, 2, a=2)
    assert values(saver.get_tuple(cfg())) == {"a": 2}


def test_names_of_orphans_are_kept_once(saver: Facade, raw: redis.Redis) -> None:
    for n in range(20):
        put(saver, 1, a=n, vers={"a": n % 2})
    assert raw.hget("ckpt:{t}:checkpoints", "orphans") == b"\x1fa\x1f0\x1e\x1fa\x1f1\x1e"
    saver.prune(["t"])
    assert raw.hkeys("ckpt:{t}:blobs") == [b"\x1fa\x1f1"]


def test_a_channel_without_a_name_keeps_its_history(saver: Facade) -> None:
    counters = {"counters_since_delta_snapshot": {"": [1, 1]}}
    put(saver, 1, vers={"": 1}, new={"": 1}, meta=counters)
    saver.put_writes(cfg("t", "", IDS[1]), [("", 7)], "task")
    put(saver, 2, parent=1, vers={"": 2}, new={"": 2}, meta=counters)
    before = saver.get_delta_channel_history(config=cfg(), channels=[""])
    assert before[""]["writes"] == [("task", "", 7)]
    saver.prune(["t"])
    assert saver.get_delta_channel_history(config=cfg(), channels=[""]) == before


def test_values_that_a_put_adds_are_those_it_was_given(blocking: RedisSaver) -> None:
    """The second trip of a put that adds values takes them from what was given, not from a dict changed since."""
    config, checkpoint, metadata, _ = arguments(1, a=[1], b=[2])
    meddle_before_trip(blocking, 1, checkpoint["channel_values"].clear)
    blocking.put(config, checkpoint, metadata, {})
    assert values(blocking.get_tuple(cfg())) == {"a": [1], "b": [2]}


def test_values_that_a_put_adds_are_as_they_were_at_the_call(blocking: RedisSaver) -> None:
    """The second trip of a put that adds values holds them as they were, not as the caller has changed them since."""
    config, checkpoint, metadata, _ = arguments(1, a=[1], b=[2])
    meddle_before_trip(blocking, 1, lambda: checkpoint["channel_values"]["a"].append(9))
    blocking.put(config, checkpoint, metadata, {})
    assert values(blocking.get_tuple(cfg())) == {"a": [1], "b": [2]}


@pytest.mark.parametrize("remove", ["delete", "prune", "nothing known"])
def test_values_of_a_known_parent_that_is_gone_are_as_they_were_at_the_call(
    blocking: RedisSaver, server: Server, remove: str
) -> None:
    """Long and short, lists and text: whoever has removed them meanwhile, and whatever the caller does to them."""
    state: dict[str, Any] = {"long": ["x" * 300], "short": [1], "text": "t", "messages": [HumanMessage("said", id="1")]}
    state |= {"array": bytearray(b"abc"), "pair": ([1], 2), "set": {1}}
    versions = {channel: next_version(None) for channel in [*state, "n"]}
    put(blocking, 1, n=1, vers=versions, **state)
    if remove == "nothing known":
        blocking._cache.begin_in_child()
    with RedisSaver(redis_client=server.raw()) as other:
        if remove == "prune":
            put(other, 9, n=9)
            other.prune(["t"])
        else:
            other.delete_thread("t")

    def meddle() -> None:
        state["long"].append(9)
        state["short"].append(9)
        state["array"].append(9)
        state["pair"][0].append(9)
        state["set"].add(9)
        state["messages"][0].content = "changed"

    config, checkpoint, metadata, _ = arguments(2, parent=1, n=2, vers=versions | {"n": next_version(versions["n"])})
    checkpoint["channel_values"].update(state)
    meddle_before_trip(blocking, 1, meddle)
    blocking.put(config, checkpoint, metadata, {"n": checkpoint["channel_versions"]["n"]})
    for saver in (blocking, RedisSaver(redis_client=server.raw())):
        found = values(saver.get_tuple(cfg("t", "", IDS[2])))
        assert found.pop("messages")[0].content == "said"
        assert found == {
            "long": ["x" * 300],
            "short": [1],
            "text": "t",
            "n": 2,
            "array": bytearray(b"abc"),
            "pair": [[1], 2],
            "set": {1},
        }
        assert type(found["array"]) is bytearray


def test_a_put_brings_back_what_was_lost_of_its_parent(saver: Facade, raw: redis.Redis) -> None:
    """All values of the thread are lost; another put has made their key anew since."""
    put(saver, 1, a=[1], b=[2], vers={"a": 1, "b": 1})
    raw.delete("ckpt:{t}:blobs")
    put(saver, 1, ns="sub", x=1)
    put(saver, 2, parent=1, a=[1], b=[2], c=3, vers={"a": 1, "b": 1, "c": 2}, new={"c": 2})
    assert values(saver.get_tuple(cfg())) == {"a": [1], "b": [2], "c": 3}


SECRETS = ["redis://:hunter2/x@localhost:6379/0", "redis://:hunter2#x@localhost:6379", "redis://:hunter2?x@localhost:1"]


@pytest.mark.parametrize("saver_class", [RedisSaver, AsyncRedisSaver])
@pytest.mark.parametrize("url", [*SECRETS, "embedded://u:hunter2@h/x"])
def test_no_error_shows_a_password(saver_class: Any, url: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be read|takes no user") as caught:
        saver_class(url)
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@on_real_servers
def test_a_server_that_wants_a_password_is_understood(make_saver: MakeSaver, raw: redis.Redis) -> None:
    raw.config_set("requirepass", "secret")
    try:
        with pytest.raises(redis.AuthenticationError, match=r"wants a password|Authentication required"):
            put(make_saver(), 1, a=1)
    finally:
        raw.config_set("requirepass", "")


def test_a_blocking_call_after_close_starts_no_loop(server: Server) -> None:
    import threading

    saver = AsyncRedisSaver(redis_client=server.araw())
    saver.close()
    with pytest.raises(ClosedError):
        saver.get_tuple(cfg())
    assert not [t for t in threading.enumerate() if t.name == "redis-ckpt-loop"]


@pytest.mark.parametrize("current", ["v1", "3", "", "v1~x", "a.b"])
def test_a_version_of_any_text_grows_without_growing_longer(saver: Facade, current: str) -> None:
    seen = [current]
    for _ in range(30):
        seen.append(saver.get_next_version(seen[-1]))
        assert seen[-1] > seen[-2]
    assert len(seen[-1]) == len(seen[1])


def test_a_huge_float_is_followed_by_a_greater_one(saver: Facade) -> None:
    assert saver.get_next_version(1e30) > 1e30
