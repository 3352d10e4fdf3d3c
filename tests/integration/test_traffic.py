"""What is not sent: nothing for an empty request, no value twice. Counted at the socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.proxy import Proxy
from tests.savers import Facade, MakeSaver, cfg, put
from tests.servers import on_real_servers

pytestmark = on_real_servers


@pytest.fixture
def warm(make_saver: MakeSaver, proxy: Proxy) -> Iterator[Facade]:
    """A saver behind the proxy, connected, its scripts loaded, with a thread of 40 checkpoints."""
    s = make_saver(redis_url=proxy.url)
    s.setup()
    for n in range(40):
        put(s, f"{n:04}", a=n, big=b"x" * 1000, vers={"a": n + 1, "big": 1}, meta={"run_id": "r"})
    s.put_writes(cfg("t", "", "0039"), [("x", 1)], "k")
    yield s
    s.close()


def trips(proxy: Proxy, call: Callable[[], Any]) -> int:
    with proxy.measure() as counts:
        call()
    return counts.trips


def test_what_is_not_asked_of_the_server_takes_no_round_trip(warm: Facade, proxy: Proxy) -> None:
    assert trips(proxy, lambda: warm.list(cfg(), limit=0)) == 0
    assert trips(proxy, lambda: warm.put_writes(cfg("t", "", "0039"), [], "k")) == 0
    assert trips(proxy, lambda: warm.prune([])) == 0
    assert trips(proxy, lambda: warm.delete_for_runs([])) == 0
    assert trips(proxy, lambda: warm.get_delta_channel_history(config=cfg(), channels=[])) == 0
    assert trips(proxy, lambda: warm.get_next_version(1)) == 0


def test_values_that_are_not_new_are_not_sent_again(warm: Facade, proxy: Proxy) -> None:
    put(warm, "0050", t="big", big=b"x" * 500_000, n=1, vers={"big": 1, "n": 1})
    with proxy.measure() as counts:
        put(warm, "0051", t="big", parent="0050", big=b"x" * 500_000, n=2, vers={"big": 1, "n": 2}, new={"n": 2})
    assert counts.trips == 1
    assert counts.bytes_up < 2_000


def test_a_value_that_several_checkpoints_of_a_page_share_is_sent_once(warm: Facade, proxy: Proxy) -> None:
    for n in range(10):
        put(warm, f"{n:04}", t="big", big=b"x" * 100_000, n=n, vers={"big": 1, "n": n + 1})
    with proxy.measure() as counts:
        assert len(warm.list(cfg("big"))) == 10
    assert 100_000 < counts.bytes_down < 120_000
