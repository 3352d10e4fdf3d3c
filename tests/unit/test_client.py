"""Ways to a server: what is accepted, what is refused, and when. No server is reached."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
import valkey
import valkey.asyncio

from redis_ckpt import AsyncRedisSaver, ClosedError, RedisSaver, Retry
from redis_ckpt._aclient import Portal, run_on
from redis_ckpt._carriers import ClientCarrier, PoolCarrier
from redis_ckpt._coalesce import Coalescer, Lanes, Pipelining
from redis_ckpt._source import clearer
from redis_ckpt.serde import FastSerializer

NOWHERE = "redis://127.0.0.1:1"
CONFIG: Any = {"configurable": {"thread_id": "t"}}
BOTH = pytest.mark.parametrize("saver_class", [RedisSaver, AsyncRedisSaver])


@BOTH
@pytest.mark.parametrize("url", ["http://x", "localhost:6379", "", "redis:/x", "REDIS://x", "mongodb://u:secret@h"])
def test_a_url_of_unknown_scheme_is_refused_without_showing_it(saver_class: Any, url: str) -> None:
    with pytest.raises(ValueError, match=r"redis_url must begin with one of redis://") as caught:
        saver_class(url)
    assert "secret" not in str(caught.value)


@BOTH
def test_url_or_client_is_needed_and_not_both(saver_class: Any) -> None:
    with pytest.raises(ValueError, match="redis_url or redis_client"):
        saver_class()
    with pytest.raises(ValueError, match="not both"):
        saver_class(NOWHERE, redis_client=fakeredis.FakeRedis())
    with pytest.raises(ValueError, match="not both"):
        saver_class(redis_client=fakeredis.FakeRedis(), connection_args={"db": 1})


@pytest.mark.parametrize(
    "client",
    [
        fakeredis.FakeRedis(decode_responses=True),
        redis.Redis(port=1, decode_responses=True),
        valkey.Valkey(port=1, decode_responses=True),
    ],
)
def test_a_client_that_decodes_is_refused(client: Any) -> None:
    with pytest.raises(ValueError, match="decode_responses"):
        RedisSaver(redis_client=client)


@BOTH
@pytest.mark.parametrize(
    "options",
    [
        {"redis_url": NOWHERE + "?decode_responses=True"},
        {"redis_url": NOWHERE, "connection_args": {"decode_responses": True}},
    ],
)
def test_a_url_that_asks_for_decoding_is_refused(saver_class: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="decode_responses"):
        saver_class(**options)


def test_a_client_of_the_other_colour_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match="use AsyncRedisSaver"):
        RedisSaver(redis_client=fakeredis.FakeAsyncRedis())
    with pytest.raises(TypeError, match="use RedisSaver"):
        AsyncRedisSaver(redis_client=fakeredis.FakeRedis())


@BOTH
def test_what_is_no_client_is_refused(saver_class: Any) -> None:
    class Nothing:
        async def execute_command(self) -> None: ...

    for nothing in (Nothing(), NOWHERE, 7):
        with pytest.raises(TypeError, match=r"must be a client .*a URL goes to redis_url"):
            saver_class(redis_client=nothing)


@BOTH
def test_an_option_that_no_connection_takes_is_refused_by_the_constructor(saver_class: Any) -> None:
    with pytest.raises(TypeError, match="sokcet"):
        saver_class(NOWHERE, connection_args={"sokcet": 1})


@BOTH
def test_what_is_no_config_is_refused(saver_class: Any) -> None:
    with pytest.raises(TypeError, match="a config is a dict"):
        saver_class(NOWHERE).list("t")


def test_a_client_may_stand_in_the_first_place() -> None:
    with RedisSaver(fakeredis.FakeRedis()) as saver:
        assert saver.get_tuple(CONFIG) is None
    with pytest.raises(ValueError, match="decode_responses"):
        RedisSaver(fakeredis.FakeRedis(decode_responses=True))


def test_nothing_is_opened_by_the_constructor() -> None:
    RedisSaver(NOWHERE).close()
    AsyncRedisSaver(NOWHERE).close()


def test_connection_arguments_reach_the_client() -> None:
    saver = RedisSaver(NOWHERE, connection_args={"client_name": "me", "db": 3, "protocol": 3, "socket_timeout": 7})
    options = saver._wire._client.connection_pool.connection_kwargs
    assert (options["client_name"], options["db"], options["protocol"], options["socket_timeout"]) == ("me", 3, 3, 7)


def test_a_connection_of_ours_sends_nothing_of_its_own() -> None:
    options = RedisSaver(NOWHERE)._wire._client.connection_pool.connection_kwargs
    assert options["protocol"] == 2
    assert options.get("driver_info", options.get("lib_name")) is None


def test_an_unreachable_server_is_an_error_and_not_an_empty_thread() -> None:
    saver = RedisSaver(NOWHERE, retry=Retry(attempts=0))
    with pytest.raises(redis.ConnectionError):
        saver.get_tuple(CONFIG)


@pytest.mark.parametrize("own_options", [{}, {"max_connections": 1}])
async def test_many_tasks_wait_for_a_connection_instead_of_failing(own_options: dict[str, Any]) -> None:
    saver = AsyncRedisSaver(NOWHERE, connection_args=own_options)
    line = await saver._wire._line()
    queue = line.sender._plain if isinstance(line.sender, Lanes) else line.sender
    assert isinstance(queue, Coalescer)
    assert queue._idle == own_options.get("max_connections", Pipelining().connections)
    await saver.aclose()


@pytest.mark.parametrize(
    ("client", "kind"),
    [
        (redis.asyncio.Redis(port=1), PoolCarrier),
        (redis.asyncio.Redis(port=1, ssl=True), PoolCarrier),
        (redis.asyncio.Redis(unix_socket_path="/nowhere"), PoolCarrier),
        (redis.asyncio.sentinel.Sentinel([("127.0.0.1", 1)]).master_for("it"), PoolCarrier),
        (redis.asyncio.Redis(port=1, single_connection_client=True), ClientCarrier),
        (valkey.asyncio.Valkey(port=1), ClientCarrier),
        (fakeredis.FakeAsyncRedis(), ClientCarrier),
        (type("Watched", (redis.asyncio.Redis,), {"execute_command": lambda *_: None})(port=1), ClientCarrier),
    ],
    ids=["tcp", "tls", "unix", "sentinel", "single", "valkey", "fake", "subclass"],
)
def test_connections_are_driven_only_where_they_are_of_a_known_kind(client: Any, kind: Any) -> None:
    assert PoolCarrier.can_drive(client) is (kind is PoolCarrier)


@pytest.mark.parametrize(
    ("client", "driven"),
    [
        (redis.Redis(port=1), True),
        (redis.Redis(port=1, ssl=True), True),
        (redis.Redis(unix_socket_path="/nowhere"), True),
        (redis.sentinel.Sentinel([("127.0.0.1", 1)]).master_for("it"), True),
        (valkey.Valkey(port=1), False),
        (fakeredis.FakeRedis(), False),
        (type("Watched", (redis.Redis,), {"execute_command": lambda *_: None})(port=1), False),
    ],
    ids=["tcp", "tls", "unix", "sentinel", "valkey", "fake", "subclass"],
)
def test_the_blocking_saver_drives_connections_only_where_they_are_of_a_known_kind(client: Any, driven: bool) -> None:
    assert (RedisSaver(redis_client=client)._wire._direct is not None) is driven


@pytest.fixture
def fake() -> Iterator[AsyncRedisSaver]:
    saver = AsyncRedisSaver(redis_client=fakeredis.FakeAsyncRedis())
    yield saver
    saver.close()


async def test_a_blocking_call_inside_the_loop_is_refused_at_once(fake: AsyncRedisSaver) -> None:
    for call in (
        lambda: fake.get_tuple(CONFIG),
        lambda: next(fake.list(CONFIG)),
        lambda: fake.put_writes({"configurable": {"thread_id": "t", "checkpoint_id": "1"}}, [("a", 1)], "k"),
        lambda: fake.delete_thread("t"),
    ):
        with pytest.raises(RuntimeError, match="await the method with an 'a'"):
            call()  # type: ignore[no-untyped-call]
    await fake.adelete_thread("t")
    assert await asyncio.to_thread(fake.get_tuple, CONFIG) is None


def test_blocking_calls_of_the_asyncio_saver_work_without_any_loop(fake: AsyncRedisSaver) -> None:
    assert fake.get_tuple(CONFIG) is None
    assert list(fake.list(CONFIG)) == []
    asyncio.run(fake.adelete_thread("t"))
    assert fake.get_tuple(CONFIG) is None


def test_a_client_that_was_given_serves_several_loops_where_it_can_be_copied() -> None:
    server = fakeredis.FakeServer()
    saver = AsyncRedisSaver(redis_client=fakeredis.FakeAsyncRedis(server=server))
    for _ in range(3):
        asyncio.run(saver.adelete_thread("t"))


def test_a_client_that_cannot_be_copied_says_so_on_its_second_loop() -> None:
    client = fakeredis.FakeAsyncRedis()

    class OwnPool(type(client.connection_pool)):  # type: ignore[misc]
        pass

    client.connection_pool.__class__ = OwnPool
    saver = AsyncRedisSaver(redis_client=client)
    asyncio.run(saver.adelete_thread("t"))
    with pytest.raises(RuntimeError, match="give redis_url instead"):
        asyncio.run(saver.adelete_thread("t"))


def test_a_loop_that_stops_in_the_middle_of_a_blocking_call_is_an_error() -> None:
    portal = Portal()

    async def stops() -> None:
        portal.loop.stop()
        await asyncio.sleep(3600)

    with pytest.raises(redis.ConnectionError, match="has ended"):
        run_on(portal.loop, stops())
    portal._thread.join()
    portal.loop.run_until_complete(asyncio.sleep(0))  # lets the cancelled task end
    portal.loop.close()


def test_a_blocking_call_that_the_end_of_its_loop_cancels_is_an_error() -> None:
    """Never a CancelledError, which a caller would take for his own wish."""
    portal = Portal()
    began = threading.Event()

    async def waits() -> None:
        began.set()
        await asyncio.sleep(3600)

    def end() -> None:
        began.wait()
        portal.loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(portal.loop)])

    threading.Thread(target=end).start()
    with pytest.raises(redis.ConnectionError, match="has ended"):
        run_on(portal.loop, waits())
    portal.close()


@pytest.mark.parametrize("cls", [RedisSaver, AsyncRedisSaver])
def test_arguments_of_a_wrong_kind_are_refused_at_once(cls: Any) -> None:
    for pipelining in (3, {"connections": 1}, Pipelining):
        with pytest.raises(TypeError, match="pipelining must be a Pipelining"):
            cls("redis://localhost", pipelining=pipelining)
    for serde in ("x", FastSerializer, object(), 5):
        with pytest.raises(TypeError, match="serde must be a serialiser"):
            cls("redis://localhost", serde=serde)


def test_a_time_out_of_the_work_itself_is_passed_on() -> None:
    portal = Portal()

    async def slow() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        run_on(portal.loop, slow())
    portal.close()


def test_after_close_every_use_says_so() -> None:
    saver = RedisSaver(redis_client=fakeredis.FakeRedis())
    clone = saver.with_allowlist([("a", "B")])
    saver.close()
    saver.close()
    for each in (saver, clone):
        with pytest.raises(ClosedError, match="RedisSaver is closed"):
            each.get_tuple(CONFIG)


async def test_after_aclose_every_use_says_so() -> None:
    async with AsyncRedisSaver.from_conn_string(NOWHERE) as saver:
        pass
    with pytest.raises(ClosedError, match="AsyncRedisSaver is closed"):
        await saver.aget_tuple(CONFIG)


def test_the_context_managers_close() -> None:
    with RedisSaver.from_conn_string(NOWHERE) as saver:
        assert isinstance(saver, RedisSaver)
    with pytest.raises(ClosedError):
        saver.get_tuple(CONFIG)


def test_a_client_that_was_given_stays_open() -> None:
    client = fakeredis.FakeRedis()
    with RedisSaver(redis_client=client):
        pass
    assert client.ping()


def test_a_fork_may_use_the_saver_of_its_parent(tmp_path: Path) -> None:
    saver = RedisSaver(NOWHERE, connection_args={"retry": None, "retry_on_error": []})
    pid = os.fork()
    if pid == 0:
        try:
            saver.get_tuple(CONFIG)
        except redis.ConnectionError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_full_memory_is_one_kind_of_error_on_every_server() -> None:
    wrapped = redis.ResponseError("Error running script (call to f_1): @user_script:32: -OOM command not allowed")
    assert type(clearer(wrapped)) is redis.exceptions.OutOfMemoryError
    assert type(clearer(redis.ResponseError("ERR other"))) is redis.ResponseError
