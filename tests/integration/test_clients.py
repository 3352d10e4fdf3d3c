"""Whatever client and server are given: the same data, or a refusal at once."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from redis_ckpt import AsyncRedisSaver, RedisSaver
from tests.monitor import monitor
from tests.proxy import Proxy
from tests.savers import IDS, Facade, LoopThread, MakeSaver, arguments, cfg, put, steps, values, writes
from tests.servers import HOST, Server, free_port, on_fake, on_real_servers

HEAD = cfg("t", "", IDS[1])
RULES = "+@read +@write +@scripting +@connection -@dangerous"


def use_everything(s: Facade) -> None:
    """Every operation once, with what it must answer."""
    put(s, 1, meta={"run_id": "r1"}, a=b"\xff\xfe")
    s.put_writes(HEAD, [("x", b"\x80")], "k")
    found = s.get_tuple(cfg())
    assert values(found) == {"a": b"\xff\xfe"}
    assert writes(found) == [("k", "x", b"\x80")]
    put(s, 2, parent=1, meta={"run_id": "r2"}, b=2)
    put(s, 3, parent=2, ns="sub:1", c=3)
    assert steps(s.list(cfg())) == [2, 1]
    assert steps(s.list(cfg(), filter={"run_id": "r1"})) == [1]
    assert steps(s.list(None)) == [3, 2, 1]
    assert s.get_delta_channel_history(config=cfg(), channels=["a", "x"]) == {
        "a": {"writes": [], "seed": b"\xff\xfe"},
        "x": {"writes": [("k", "x", b"\x80")]},
    }
    s.copy_thread("t", "t2")
    assert {info.thread_id for info in s.threads()} == {"t", "t2"}
    s.prune(["t2"])
    assert steps(s.list(cfg("t2"))) == [2]
    s.delete_for_runs(["r2"])
    assert steps(s.list(cfg())) == [1]
    for name in ("t", "t2"):
        s.delete_thread(name)
    assert s.list(None) == []


@pytest.mark.parametrize("protocol", [2, 3])
def test_every_operation_answers_the_same_under_both_protocols(saver: Facade) -> None:
    saver.setup()
    use_everything(saver)


@on_real_servers
@pytest.mark.parametrize("protocol", [2, 3])
def test_the_protocol_of_the_url_is_spoken(saver: Facade, raw: redis.Redis, protocol: int) -> None:
    put(saver, 1, a=1)
    spoken = {client.get("resp") for client in raw.client_list() if client["cmd"] == "evalsha"}
    assert spoken <= {str(protocol), None}  # Redis 6.2 does not tell


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("library", [redis, valkey])
def test_a_client_that_decodes_is_refused(server: Server, colour: str, library: Any, protocol: int) -> None:
    options = {"decode_responses": True, "protocol": protocol}
    saver: Any = RedisSaver if colour == "sync" else AsyncRedisSaver
    module = library if colour == "sync" else library.asyncio
    for client in (
        getattr(module, library.__name__.capitalize())(port=free_port(), **options),
        server.raw(**options) if colour == "sync" else server.araw(**options),
    ):
        with pytest.raises(ValueError, match="decode_responses"):
            saver(redis_client=client)
    for url, args in (
        ("redis://localhost?decode_responses=True", None),
        ("redis://localhost", {"decode_responses": True}),
    ):
        with pytest.raises(ValueError, match="decode_responses"):
            saver(url, connection_args=args)


def test_a_client_of_valkey_py_works(
    make_saver: MakeSaver, server: Server, loop_thread: LoopThread, colour: str
) -> None:
    client: Any
    if server.url is None:
        kind = fakeredis.FakeValkey if colour == "sync" else fakeredis.FakeAsyncValkey
        client = kind(server=server.fake)
    else:
        url = server.url.replace("redis://", "valkey://")
        client = (valkey.Valkey if colour == "sync" else valkey.asyncio.Valkey).from_url(url)
    use_everything(make_saver(redis_client=client))
    if colour == "sync":
        client.script_flush()
    else:
        loop_thread.run(client.script_flush())
    use_everything(make_saver(redis_client=client))
    if colour == "sync":
        client.close()
    else:
        loop_thread.run(client.aclose())


@on_real_servers
def test_a_client_that_was_given_stays_open(server: Server, loop_thread: LoopThread) -> None:
    client = server.raw()
    with RedisSaver(redis_client=client) as s:
        put(s, 1, a=1)
    assert client.ping()

    async def asynchronous() -> None:
        client = server.araw()
        async with AsyncRedisSaver(redis_client=client) as s:
            assert values(await s.aget_tuple(cfg())) == {"a": 1}
        assert await client.ping()
        await client.aclose()

    loop_thread.run(asynchronous())


@on_fake
def test_a_client_of_the_wrong_colour_is_refused(server: Server, loop_thread: LoopThread) -> None:
    sync, asynchronous = server.raw(), server.araw()
    with pytest.raises(TypeError, match="AsyncRedisSaver"):
        RedisSaver(redis_client=asynchronous)
    with pytest.raises(TypeError, match="RedisSaver"):
        AsyncRedisSaver(redis_client=sync)
    loop_thread.run(asynchronous.aclose())


@on_fake
@pytest.mark.parametrize("kind", [RedisSaver, AsyncRedisSaver])
def test_what_does_not_say_where_to_connect_is_refused(kind: Any, server: Server) -> None:
    for url in ("http://localhost", "localhost:6379", "", "memory://", "REDIS//x", "redis:/localhost"):
        with pytest.raises(ValueError, match="redis_url"):
            kind(url)
    with pytest.raises(ValueError, match="redis_url"):
        kind()
    with pytest.raises(ValueError, match="not both"):
        kind("redis://localhost", redis_client=server.raw())
    with pytest.raises(ValueError, match="redis_url") as caught:
        kind("ftp://user:password@host")
    assert "password" not in str(caught.value)


@pytest.mark.parametrize("db", [0, 3, 15])
def test_any_database_can_be_used(make_saver: MakeSaver, server: Server, db: int) -> None:
    s = make_saver(db=db)
    put(s, 1, a=1)
    assert server.databases() == [db]
    use_everything(make_saver(db=1))
    assert values(s.get_tuple(cfg())) == {"a": 1}
    assert len(make_saver(db=(db + 1) % 16).list(None)) == 0


def test_savers_with_different_prefixes_never_meet(make_saver: MakeSaver, raw: redis.Redis) -> None:
    prefixes = ["ckpt", "ckpt2", "ck", "ckpt:run", "ckpt:x", "ckpt*", "c?pt", "[c]kpt", "run", "é"]
    savers = {prefix: make_saver(prefix=prefix) for prefix in prefixes}
    for prefix, s in savers.items():
        for name in ("t", "run", "x"):
            put(s, 1, t=name, meta={"run_id": "r"}, a=prefix)
    for prefix, s in savers.items():
        assert {str(values(item)["a"]) for item in s.list(None)} == {prefix}
        assert {info.thread_id for info in s.threads()} == {"t", "run", "x"}
    for prefix, s in savers.items():
        for other in prefixes[prefixes.index(prefix) :]:
            assert values(savers[other].get_tuple(cfg("run"))) == {"a": other}
        s.delete_for_runs(["r"])
        s.delete_thread("t")
        assert s.list(None) == []
    # the key of a run stays until it expires
    assert set(raw.scan_iter()) <= {f"{prefix}:run:{{r}}".encode() for prefix in prefixes}


@on_real_servers
def test_a_user_with_data_and_script_commands_on_the_prefix_is_enough(
    make_saver: MakeSaver, server: Server, raw: redis.Redis
) -> None:
    raw.execute_command("ACL", "SETUSER", "agent", "reset", "on", ">pass", "~ckpt:*", *RULES.split())
    try:
        s = make_saver(redis_url=f"redis://agent:pass@{HOST}:{server.port}")
        with monitor(server) as lines:
            s.setup()
            use_everything(s)
        s.close()
    finally:
        raw.execute_command("ACL", "DELUSER", "agent")
    assert set(lines.names()) <= {"EVALSHA", "SCRIPT", "UNLINK", "SCAN", "SMEMBERS"}


@on_real_servers
def test_the_same_user_may_let_threads_expire_and_sweep_them(
    make_saver: MakeSaver, server: Server, raw: redis.Redis
) -> None:
    raw.execute_command("ACL", "SETUSER", "agent", "reset", "on", ">pass", "~ckpt:*", *RULES.split())
    try:
        url = f"redis://agent:pass@{HOST}:{server.port}"
        s = make_saver(redis_url=url, ttl=1000, refresh_on_read=True, keep_last=2)
        with monitor(server) as lines:
            s.put_writes(HEAD, [("x", 0)], "early")
            for i in range(1, 10):
                put(s, i, parent=i - 1, a=i, vers={"a": i})
                s.put_writes(cfg("t", "", IDS[i]), [("x", i)], "task")
            assert values(s.get_tuple(cfg())) == {"a": 9}
            assert s.expire("t", 2000)
            assert s.persist("t")
            s.copy_thread("t", "pinned")
            assert s.expire("t", None)
            assert s.sweep(["t"], keep_last=1, older_than=0).checkpoints
            found = s.stats("t")
            assert found is not None
            assert found.deadline is not None
            put(s, "odd", t="odd", a=1)
            assert s.sweep(idle_for=1, older_than=1).threads_removed == 2
            assert (s.stats().threads, s.stats().pinned) == (1, 1)
        s.close()
    finally:
        raw.execute_command("ACL", "DELUSER", "agent")
    assert set(lines.names()) <= {"EVALSHA", "SCRIPT", "SCAN", "HSTRLEN", "HMGET", "ZRANGEBYLEX"}
    assert {key.split(b":")[1] for key in raw.scan_iter()} == {b"{pinned}"}


def test_a_server_that_is_not_there_is_an_error_and_wrong_arguments_come_first(
    make_saver: MakeSaver, loop_thread: LoopThread
) -> None:
    s = make_saver(
        redis_url=f"redis://{HOST}:{free_port()}", connection_args={"retry": None, "socket_connect_timeout": 5}
    )
    for call in (
        lambda: s.list(cfg(), limit=-1),
        lambda: s.put(*arguments(1, t="", a=1)),
        lambda: s.prune(["t"], strategy="no"),
        lambda: s.copy_thread("t", "t"),
        lambda: s.get_tuple({"configurable": {}}),
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            call()
    for reach in (lambda: s.get_tuple(cfg()), lambda: s.list(cfg()), lambda: put(s, 1, a=1)):
        with pytest.raises(redis.exceptions.ConnectionError):
            reach()


@on_real_servers
def test_a_negative_limit_is_refused_when_the_list_is_asked_for(saver: Facade) -> None:
    for name, limit in itertools.product(("list", "alist"), (-1, -100, 1.5, True)):
        with pytest.raises(ValueError, match="limit"):
            getattr(saver.raw_saver, name)(cfg(), limit=limit)


@on_real_servers
def test_a_lost_connection_is_opened_again(make_saver: MakeSaver, server: Server) -> None:
    with Proxy(server.port) as proxy:
        s = make_saver(redis_url=proxy.url)
        put(s, 1, a=1)
        for i in range(2, 6):
            proxy.cut()
            put(s, i, parent=i - 1, a=i)
        proxy.cut()
        assert steps(s.list(cfg())) == [5, 4, 3, 2, 1]
        s.close()


@on_real_servers
def test_a_lost_answer_is_asked_for_again_and_the_work_done_once(make_saver: MakeSaver, server: Server) -> None:
    with Proxy(server.port) as proxy:
        s = make_saver(redis_url=proxy.url)
        put(s, 1, a=1)
        s.put_writes(HEAD, [("x", 0)], "warm")
        s.setup()
        for n in range(5):
            proxy.lose_replies()
            s.put_writes(HEAD, [("x", n), ("y", -n)], f"task-{n}")
            proxy.lose_replies()
            put(s, 2 + n, parent=1 + n, a=n)
        expected = [(f"task-{n}", c, v) for n in range(5) for c, v in (("x", n), ("y", -n))]
        assert writes(s.get_tuple(HEAD)) == [*expected, ("warm", "x", 0)]
        assert steps(s.list(cfg())) == [6, 5, 4, 3, 2, 1]
        proxy.lose_replies()
        s.copy_thread("t", "t2")
        assert len(s.list(cfg("t2"))) == 6
        s.close()


def test_the_savers_are_made_without_a_loop_or_a_connection() -> None:
    url = f"redis://{HOST}:{free_port()}"
    s = RedisSaver(url)
    s.close()
    a = AsyncRedisSaver(url)
    asyncio.run(a.aclose())
