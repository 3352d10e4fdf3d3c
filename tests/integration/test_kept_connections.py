"""Connections that a saver keeps at hand, in both colours: no reply is ever another call's, none outlives its use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis.credentials import UsernamePasswordCredentialProvider

from redis_ckpt import AsyncRedisSaver, RedisSaver, _carriers, _direct
from tests.integration.test_robustness import in_child
from tests.proxy import Proxy
from tests.savers import Facade, MakeSaver, cfg, put, values
from tests.servers import Server, on_real_servers

pytestmark = on_real_servers
NO_RETRIES: dict[str, Any] = {"retry": None, "retry_on_error": []}


@pytest.fixture
def blocking(proxy: Proxy) -> Iterator[RedisSaver]:
    with RedisSaver(proxy.url, cache_bytes=0) as saver:
        put(saver, 1, a=1)
        put(saver, 1, t="other", a=2)
        assert values(saver.get_tuple(cfg())) == {"a": 1}  # the script is there now
        yield saver


def kept(saver: RedisSaver) -> list[Any]:
    assert saver._wire._direct is not None
    assert saver._wire._direct._idle is not None
    return [connection for connection, _ in saver._wire._direct._idle]


def run_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_one_thread_uses_one_connection(proxy: Proxy, blocking: RedisSaver) -> None:
    with proxy.measure() as counted:
        for _ in range(20):
            assert values(blocking.get_tuple(cfg())) == {"a": 1}
    assert counted.connections == 0
    assert counted.trips == 20
    assert len(kept(blocking)) == 1


def test_threads_never_share_a_connection(blocking: RedisSaver) -> None:
    def use(t: str, expected: int) -> None:
        found.extend(values(blocking.get_tuple(cfg(t)))["a"] == expected for _ in range(200))

    found: list[bool] = []
    run_all([threading.Thread(target=use, args=pair) for pair in [("t", 1), ("other", 2)] * 4])
    assert found == [True] * 1600
    assert 1 <= len(kept(blocking)) <= 8


def test_a_connection_that_broke_is_repeated_by_the_policy(proxy: Proxy, blocking: RedisSaver) -> None:
    for break_off in (proxy.cut, proxy.lose_replies):
        break_off()
        assert values(blocking.get_tuple(cfg())) == {"a": 1}


def test_without_retries_a_broken_connection_is_an_error_once(proxy: Proxy) -> None:
    with RedisSaver(proxy.url, connection_args=NO_RETRIES) as saver:
        put(saver, 1, a=1)
        proxy.lose_replies()
        with pytest.raises(redis.ConnectionError):
            saver.get_tuple(cfg())
        assert values(saver.get_tuple(cfg())) == {"a": 1}


@pytest.mark.parametrize("retries", [0, 2])
def test_a_policy_tries_as_often_as_it_says(proxy: Proxy, retries: int) -> None:
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    with RedisSaver(proxy.url, connection_args={"retry": Retry(NoBackoff(), retries)}) as saver:
        put(saver, 1, a=1)
        proxy.lose_replies(retries + 1)
        before = proxy.counts().connections
        with pytest.raises(redis.ConnectionError):
            saver.get_tuple(cfg())
        assert proxy.counts().connections - before == retries
        assert values(saver.get_tuple(cfg())) == {"a": 1}


def test_a_reply_that_was_left_unread_is_nobody_elses(blocking: RedisSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    assert values(blocking.get_tuple(cfg())) == {"a": 1}
    (connection,) = kept(blocking)

    def interrupted() -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "read_response", interrupted)
    with pytest.raises(KeyboardInterrupt):
        blocking.get_tuple(cfg())
    monkeypatch.undo()
    assert values(blocking.get_tuple(cfg("other"))) == {"a": 2}
    assert len(kept(blocking)) == 1


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_connection_that_was_idle_for_long_is_looked_at(
    proxy: Proxy, make_saver: MakeSaver, monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    for module in (_direct, _carriers):
        monkeypatch.setattr(module, "LOOK_AFTER_SECONDS", 0.0)
    saver = make_saver(redis_url=proxy.url, connection_args=NO_RETRIES)
    put(saver, 1, a=1)
    for _ in range(3):
        proxy.cut()
        assert values(saver.get_tuple(cfg())) == {"a": 1}


def limited(args: dict[str, Any]) -> Callable[[str], RedisSaver]:
    return lambda url: RedisSaver(url, connection_args=args)


@pytest.mark.parametrize(
    "make",
    [
        limited({"max_connections": 1}),
        limited({"credential_provider": UsernamePasswordCredentialProvider("default", "")}),
        lambda url: RedisSaver(redis_client=redis.Redis.from_url(url)),
    ],
    ids=["limited", "credentials", "given"],
)
def test_where_the_pool_may_want_them_connections_go_back(server: Server, make: Callable[[str], RedisSaver]) -> None:
    saver = make(str(server.url))
    assert saver._wire._direct is not None
    assert saver._wire._direct._idle is None
    saver._wire._client.close()


def test_a_server_that_moves_gets_a_new_connection(
    blocking: RedisSaver, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    (connection,) = kept(blocking)
    monkeypatch.setattr(connection, "should_reconnect", lambda: True, raising=False)
    with proxy.measure() as counted:
        assert values(blocking.get_tuple(cfg())) == {"a": 1}
        assert values(blocking.get_tuple(cfg())) == {"a": 1}
    assert counted.connections >= 1


def test_close_closes_what_is_kept(proxy: Proxy) -> None:
    saver = RedisSaver(proxy.url)
    put(saver, 1, a=1)
    (connection,) = kept(saver)
    saver.close()
    assert connection._sock is None


def test_a_child_forked_while_threads_work_has_connections_of_its_own(proxy: Proxy, blocking: RedisSaver) -> None:
    """Whatever lock another thread holds at the fork, the child waits for none of them."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            blocking.get_tuple(cfg())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(15):
            in_child(lambda: values(blocking.get_tuple(cfg("other"))) == {"a": 2})
            assert values(blocking.get_tuple(cfg())) == {"a": 1}
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_threads_of_a_child_that_call_at_once_have_connections_of_their_own(proxy: Proxy, blocking: RedisSaver) -> None:
    def work() -> bool:
        right: list[bool] = []
        start = threading.Barrier(4)

        def call(t: str, expected: int) -> None:
            start.wait()
            right.extend(values(blocking.get_tuple(cfg(t))) == {"a": expected} for _ in range(3))

        run_all([threading.Thread(target=call, args=pair) for pair in [("t", 1), ("other", 2)] * 2])
        return right == [True] * 12

    for _ in range(20):
        in_child(work)
        assert values(blocking.get_tuple(cfg())) == {"a": 1}


def test_an_interrupt_while_a_connection_is_closed_leaves_it_to_nobody(
    blocking: RedisSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    (connection,) = kept(blocking)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    for method in ("read_response", "disconnect"):
        monkeypatch.setattr(connection, method, interrupted)
    with pytest.raises(KeyboardInterrupt):
        blocking.get_tuple(cfg())
    monkeypatch.undo()
    for t, expected in [("other", 2), ("t", 1)] * 2:
        assert values(blocking.get_tuple(cfg(t))) == {"a": expected}


async def test_tasks_of_a_loop_keep_their_connections(proxy: Proxy) -> None:
    async with AsyncRedisSaver.from_conn_string(proxy.url) as saver:
        await saver.aget_tuple(cfg())
        with proxy.measure() as counted:
            for _ in range(10):
                await asyncio.gather(*(saver.aget_tuple(cfg(str(n))) for n in range(20)))
                await saver.aget_tuple(cfg())
        assert counted.connections <= 1  # the second of two


async def test_a_large_batch_waits_for_room_with_the_timeout_of_the_connection(proxy: Proxy) -> None:
    async with AsyncRedisSaver.from_conn_string(proxy.url) as saver:
        text = "x" * 3_000_000
        from tests.savers import arguments

        await asyncio.gather(*(saver.aput(*arguments(1, t=str(n), a=text)) for n in range(5)))
        for n in range(5):
            assert values(await saver.aget_tuple(cfg(str(n)))) == {"a": text}


def test_a_saver_of_either_colour_survives_a_cut_between_calls(proxy: Proxy, make_saver: MakeSaver) -> None:
    saver: Facade = make_saver(redis_url=proxy.url)
    for n in range(1, 6):
        put(saver, n, parent=n - 1 or None, a=n)
        proxy.cut()
        assert values(saver.get_tuple(cfg())) == {"a": n}
