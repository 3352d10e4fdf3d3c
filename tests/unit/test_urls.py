"""URLs of all kinds: what they name, what they carry over, and what is refused without showing a password."""

from __future__ import annotations

import os
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.sentinel

from redis_ckpt import Ack, AsyncRedisSaver, RedisSaver
from redis_ckpt._making import Sentinels, make_client, options_for
from redis_ckpt._urls import address_of

BOTH = pytest.mark.parametrize("saver_class", [RedisSaver, AsyncRedisSaver])


def connection_options(url: str, is_async: bool = False, **connection_args: Any) -> dict[str, Any]:
    """The options with which connections would be made."""
    address = address_of(url)
    client = make_client(address, options_for(address, connection_args, 0), is_async)
    options: dict[str, Any] = client.connection_pool.connection_kwargs
    return options


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", ("server", "redis://h", (), "")),
        ("rediss://u:p@h:7/3?socket_timeout=1", ("server", "rediss://u:p@h:7/3?socket_timeout=1", (), "")),
        ("unix:///tmp/s?db=1", ("server", "unix:///tmp/s?db=1", (), "")),
        ("embedded://", ("embedded", "embedded://", (), "")),
        ("redis+cluster://h", ("cluster", "redis://h:6379/0", (("h", 6379),), "")),
        (
            "rediss+cluster://u:p%40@a:1,b:2,[::1]:3/0?client_name=me",
            ("cluster", "rediss://u:p%40@a:1/0?client_name=me", (("a", 1), ("b", 2), ("::1", 3)), ""),
        ),
        ("redis+sentinel://h/it", ("sentinel", "redis://h:26379/0", (("h", 26379),), "it")),
        (
            "rediss+sentinel://u:p@[::1],b:2/the%20one/5?socket_timeout=9",
            ("sentinel", "rediss://u:p@[::1]:26379/5?socket_timeout=9", (("::1", 26379), ("b", 2)), "the one"),
        ),
    ],
)
def test_what_a_url_names(url: str, expected: tuple[Any, ...]) -> None:
    assert tuple(address_of(url)) == expected


@BOTH
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis+ring://u:secret@h", "begin with one of"),
        ("redis+cluster://u:secret@", "names no host"),
        ("redis+cluster://u:secret@a:1,,b:2", "names no host"),
        ("redis+cluster://u:secret@a:1/1", "one database"),
        ("redis+cluster://u:secret@a:x", "cannot be read"),
        ("redis+cluster://u:se/cret@a:1", "cannot be read|one database|names no host"),
        ("redis+sentinel://u:secret@a:1", "must name a service"),
        ("redis+sentinel://u:secret@a:1/", "must name a service"),
        ("redis+sentinel://u:secret@a:1/it/x", "must name a service"),
        ("redis+sentinel://u:secret@a:1/it/0/0", "must name a service"),
        ("redis+sentinel://u:secret@/it", "names no host"),
        ("redis://u:sec#ret@h:1", "cannot be read"),
    ],
)
def test_what_cannot_be_understood_is_refused_without_showing_a_password(saver_class: Any, url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        saver_class(url)
    assert "sec" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("is_async", [False, True])
def test_timeouts_and_keepalive_are_on_and_can_be_changed(is_async: bool) -> None:
    options = connection_options("redis://h", is_async)
    assert (options["socket_timeout"], options["socket_connect_timeout"], options["socket_keepalive"]) == (10, 5, True)
    options = connection_options(
        "redis://h?socket_timeout=3", is_async, socket_connect_timeout=1, socket_keepalive=False
    )
    assert (options["socket_timeout"], options["socket_connect_timeout"], options["socket_keepalive"]) == (3, 1, False)
    assert "socket_keepalive" not in connection_options("unix:///tmp/s", is_async)
    assert connection_options("redis://h?socket_timeout=3", is_async, socket_timeout=4)["socket_timeout"] == 3


@BOTH
@pytest.mark.parametrize("url", ["redis://h", "redis+cluster://h", "redis+sentinel://h/it", "embedded://"])
def test_a_socket_does_not_time_out_before_an_acknowledgement(saver_class: Any, url: str) -> None:
    if url != "embedded://":
        saver = saver_class(url, ack=Ack(timeout=30))
        assert saver._wire._options["socket_timeout"] == 31
    with pytest.raises(ValueError, match=r"5 s.* 31\.0 s"):
        saver_class(url, ack=Ack(timeout=30), connection_args={"socket_timeout": 5})


def test_a_given_client_does_not_time_out_before_an_acknowledgement() -> None:
    sentinel = redis.sentinel.Sentinel([("h", 1)])
    short: list[Any] = [redis.Redis(socket_timeout=2), sentinel.master_for("it", socket_timeout=2)]
    for client in short:
        with pytest.raises(ValueError, match="socket_timeout is 2"):
            RedisSaver(redis_client=client, ack=Ack(timeout=2))
    for client in (redis.asyncio.Redis(socket_timeout=2), redis.asyncio.RedisCluster("h", socket_timeout=2)):
        with pytest.raises(ValueError, match="socket_timeout is 2"):
            AsyncRedisSaver(redis_client=client, ack=Ack(timeout=2))
    for good in (redis.Redis(socket_timeout=3), redis.Redis(socket_timeout=None)):
        RedisSaver(redis_client=good, ack=Ack(timeout=2))
    for each in sentinel.sentinels:
        each.close()


@BOTH
def test_a_sentinel_url_carries_its_options_to_the_right_side(saver_class: Any) -> None:
    saver = saver_class(
        "rediss+sentinel://u:p%40@a:1,b:2/it/4?client_name=me",
        connection_args={"ssl_ca_certs": os.devnull, "socket_timeout": 7},
    )
    client = saver._wire._client if saver_class is RedisSaver else saver._wire._make()
    pool = client.connection_pool
    options = pool.connection_kwargs
    assert (options["username"], options["password"], options["db"], options["client_name"]) == ("u", "p@", 4, "me")
    assert (options["socket_timeout"], options["ssl_ca_certs"]) == (7, os.devnull)
    assert "SSL" in pool.connection_class.__name__
    manager = pool.sentinel_manager
    assert pool.service_name == "it"
    for sentinel, (host, port) in zip(manager.sentinels, [("a", 1), ("b", 2)], strict=True):
        own = sentinel.connection_pool.connection_kwargs
        assert (own["host"], own["port"], own["socket_timeout"], own["ssl_ca_certs"]) == (host, port, 7, os.devnull)
        assert own.get("password") is None
    if saver_class is RedisSaver:
        saver.close()


def test_sentinels_have_credentials_of_their_own_and_keep_the_rest() -> None:
    address = address_of("rediss+sentinel://a:1/it")
    args = {"sentinel_kwargs": {"password": "s"}, "ssl_ca_certs": os.devnull, "socket_timeout": 7}
    client = make_client(address, options_for(address, args, 0), False)
    (sentinel,) = client.connection_pool.sentinel_manager.sentinels
    own = sentinel.connection_pool.connection_kwargs
    assert (own["password"], own["socket_timeout"], own["ssl_ca_certs"]) == ("s", 7, os.devnull)
    assert "SSL" in sentinel.connection_pool.connection_class.__name__
    client.close()
    sentinel.close()


def test_no_sentinel_is_lost_where_several_look_for_the_primary_at_once() -> None:
    """redis-py swaps the one that answered with the first, by numbers that others may have changed meanwhile."""
    sentinels = Sentinels(["a", "b", "c"])
    for _ in range(2):
        sentinels[0], sentinels[1] = "b", sentinels[0]
    assert sentinels == ["b", "a", "c"]
    sentinels[0], sentinels[2] = "c", sentinels[0]
    assert sentinels == ["c", "b", "a"]


@BOTH
@pytest.mark.parametrize("url", ["redis+cluster://127.0.0.1:1", "redis+sentinel://127.0.0.1:1/it"])
def test_the_constructor_opens_nothing_and_refuses_unknown_options(saver_class: Any, url: str) -> None:
    saver_class(url).close()
    with pytest.raises(TypeError, match="sokcet"):
        saver_class(url, connection_args={"sokcet": 1})
    with pytest.raises(ValueError, match="decode_responses"):
        saver_class(url, connection_args={"decode_responses": True})
