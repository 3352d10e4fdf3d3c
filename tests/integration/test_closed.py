"""A closed saver says so in every method that there is; one that is added later must be named here."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any

import pytest
import redis

from redis_ckpt import AsyncRedisSaver, ClosedError, RedisSaver
from tests.savers import Facade, arguments, cfg, put
from tests.servers import on_fake

ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "copy_thread": (("t", "u"), {}),
    "delete_for_runs": ((["r"],), {}),
    "delete_thread": (("t",), {}),
    "expire": (("t", 60), {}),
    "get": ((cfg(),), {}),
    "get_delta_channel_history": ((), {"config": cfg(), "channels": ["a"]}),
    "get_tuple": ((cfg(),), {}),
    "list": ((cfg(),), {}),
    "persist": (("t",), {}),
    "prune": ((["t"],), {}),
    "put": (arguments(1, a=1), {}),
    "put_writes": ((cfg("t", "", "id"), [("x", 1)], "task"), {}),
    "setup": ((), {}),
    "stats": (("t",), {}),
    "sweep": ((), {"keep_last": 1}),
    "threads": ((), {}),
    "verify": (("t",), {}),
}
NOT_CALLS = {"close", "aclose", "from_conn_string", "from_url", "get_next_version", "with_allowlist", "config_specs"}


def methods(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")} - NOT_CALLS


@pytest.mark.parametrize("kind", [RedisSaver, AsyncRedisSaver])
def test_every_method_is_known_here(kind: type) -> None:
    assert methods(kind) == {prefix + name for name in ARGUMENTS for prefix in ("", "a")}


@on_fake
def test_after_close_every_method_says_so_and_nothing_is_sent(saver: Facade, raw: redis.Redis) -> None:
    put(saver, 1, a=1)
    before = {key: raw.dump(key) for key in raw.scan_iter()}
    saver.close()
    for name, (args, kwargs) in ARGUMENTS.items():
        for prefix in ("", "a"):
            with pytest.raises(ClosedError, match="is closed"):
                _call(saver, prefix + name, *args, **kwargs)
    assert {key: raw.dump(key) for key in raw.scan_iter()} == before


def _call(saver: Facade, name: str, *args: Any, **kwargs: Any) -> Any:
    outcome = getattr(saver.raw_saver, name)(*args, **kwargs)
    if isinstance(outcome, AsyncIterator):
        return saver.loop.run(_first(outcome))
    if isinstance(outcome, Awaitable):
        return saver.loop.run(outcome)
    return next(outcome) if isinstance(outcome, Iterator) else outcome


async def _first(items: AsyncIterator[Any]) -> Any:
    return await anext(items)
