"""A service of Sentinel whose primary dies: runs go on by retry, and what was acknowledged is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis.asyncio.sentinel
import redis.sentinel

from redis_ckpt import Ack, NotAcknowledgedError
from tests.integration.graphs import Play, thread
from tests.integration.long_runs import PATIENT, WHOLE, counting
from tests.savers import Facade, LoopThread, cfg, ids, put, values
from tests.topology.sentinel import SERVICE, SentinelSetup

pytestmark = pytest.mark.timeout(240)

Make = Callable[..., Facade]


def test_a_service_is_found_and_used(service: SentinelSetup, make: Make) -> None:
    saver = make(service.url + "/3")
    assert Play(saver).invoke(Play(saver).app(counting()), {"round": 0}, thread())["log"] == WHOLE
    assert [info.thread_id for info in saver.threads()] == ["t"]
    assert [key for key in service.primary.raw(db=3).scan_iter() if b"run:" not in key]
    assert service.primary.raw().dbsize() == 0
    saver.delete_thread("t")
    assert not [key for key in service.primary.raw(db=3).scan_iter() if b"run:" not in key]


def test_a_client_of_sentinel_is_taken(
    service: SentinelSetup, make: Make, colour: str, loop_thread: LoopThread
) -> None:
    kind: Any = redis.sentinel.Sentinel if colour == "sync" else redis.asyncio.sentinel.Sentinel
    manager = kind(service.hosts)
    sentinels = list(manager.sentinels)  # redis-py may lose one
    client = manager.master_for(SERVICE)
    saver = make(redis_client=client)
    put(saver, 1, a=1)
    assert values(saver.get_tuple(cfg())) == {"a": 1}
    for each in (client, *sentinels):
        if colour == "sync":
            each.close()
        else:
            loop_thread.run(each.aclose())


def test_runs_go_on_over_the_death_of_the_primary(service: SentinelSetup, make: Make) -> None:
    saver = make(service.url, retry=PATIENT)
    deaths: list[int] = []

    def die(round: int) -> None:
        if round == 3 and not deaths:
            deaths.append(round)
            service.kill_primary()

    play = Play(saver)
    app = play.app(counting(die))
    assert play.invoke(app, {"round": 0}, thread())["log"] == WHOLE
    assert deaths == [3]
    service.wait_for_failover()
    assert play.state(app, thread()).values["log"] == WHOLE


def test_what_was_acknowledged_outlives_the_primary(service: SentinelSetup, make: Make) -> None:
    saver = make(service.url, retry=PATIENT, ack=Ack(replicas=1, timeout=8))
    for i in range(8):
        put(saver, i, parent=i - 1 if i else None, log=list(range(i)))
    service.kill_primary()
    before = make(service.url, retry=PATIENT)
    assert len(ids(before.list(cfg()))) == 8
    assert [len(values(found)["log"]) for found in saver.list(cfg())] == list(range(7, -1, -1))
    service.wait_for_failover()
    with pytest.raises(NotAcknowledgedError):  # nobody is there to acknowledge it
        put(make(service.url, retry=PATIENT, ack=Ack(replicas=1, timeout=0.05)), 8, parent=7, log=[])
    service.heal()
    put(saver, 8, parent=7, log=[])
    assert values(saver.get_tuple(cfg())) == {"log": []}
