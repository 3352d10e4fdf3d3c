"""Clusters whose primaries die and whose slots move: runs go on, and what was acknowledged is there."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redis_ckpt import Ack, AsyncRedisSaver, NotAcknowledgedError, RedisSaver
from redis_ckpt._keys import thread_keys
from tests.cluster.servers import Cluster, wait_until
from tests.integration.graphs import Play, thread
from tests.integration.long_runs import PATIENT, WHOLE, counting
from tests.savers import IDS, Facade, LoopThread, cfg, ids, put, values, writes
from tests.servers import REAL_KINDS

pytestmark = pytest.mark.timeout(240)

THREADS = [f"thread-{n}" for n in range(6)]
ACKED = Ack(replicas=1, timeout=8)
Make = Callable[..., Facade]


@pytest.fixture(params=REAL_KINDS)
def replicated(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Three primaries with a replica each."""
    made = Cluster(request.param, tmp_path, replicas=1)
    yield made
    made.stop()


@pytest.fixture
def make(colour: str, loop_thread: LoopThread) -> Iterator[Make]:
    made: list[Facade] = []

    def build(redis_url: str, **options: Any) -> Facade:
        kind: Any = RedisSaver if colour == "sync" else AsyncRedisSaver
        made.append(Facade(kind(redis_url, **{"retry": PATIENT} | options), loop_thread))
        return made[-1]

    yield build
    for facade in made:
        facade.close()


def test_runs_go_on_over_the_death_of_a_primary(replicated: Cluster, make: Make) -> None:
    saver = make(replicated.url)
    play = Play(saver)
    deaths: list[int] = []

    def die(round: int) -> None:
        if round == 3 and not deaths:
            deaths.append(replicated.node_of("t"))
            replicated.kill_primary(deaths[0])

    app = play.app(counting(die))
    assert play.invoke(app, {"round": 0}, thread())["log"] == WHOLE
    assert len(deaths) == 1
    replicated.wait_for_failover(deaths[0])
    assert play.state(app, thread()).values["log"] == WHOLE
    for name in THREADS:  # those of the other nodes too
        assert play.invoke(app, {"round": 0}, thread(name))["log"] == WHOLE


def test_what_was_acknowledged_outlives_a_primary(replicated: Cluster, make: Make) -> None:
    saver = make(replicated.url, ack=ACKED)
    for i in range(8):
        for name in THREADS:
            config = put(saver, i, t=name, parent=i - 1 if i else None, log=list(range(i)), meta={"run_id": f"r{i}"})
            saver.put_writes(config, [("x", i)], "task")
    victim = replicated.node_of(THREADS[0])
    replicated.kill_primary(victim)
    reader = make(replicated.url)
    for name in THREADS:
        found = reader.list(cfg(name))
        assert [len(values(each)["log"]) for each in found] == list(range(7, -1, -1))
        assert [writes(each) for each in found] == [[("task", "x", i)] for i in range(7, -1, -1)]
    replicated.wait_for_failover(victim)
    with pytest.raises(NotAcknowledgedError):  # nobody is there to acknowledge it
        put(make(replicated.url, ack=Ack(timeout=0.05)), 8, t=THREADS[0], parent=7, log=[])
    replicated.heal(victim)
    put(saver, 8, t=THREADS[0], parent=7, log=[])
    assert values(saver.get_tuple(cfg(THREADS[0]))) == {"log": []}


@contextmanager
def silent(cluster: Cluster) -> Iterator[None]:
    """Replicas that are there and say nothing."""
    for replica in cluster.replicas:
        os.kill(replica.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for replica in cluster.replicas:
            os.kill(replica.pid, signal.SIGCONT)


def test_silent_replicas_are_told_on_every_node(replicated: Cluster, make: Make) -> None:
    saver = make(replicated.url, ack=Ack(timeout=0.05))
    saver.setup()
    with silent(replicated):
        for name in THREADS:
            with pytest.raises(NotAcknowledgedError, match="0 of 1 replicas"):
                put(saver, 1, t=name, a=name, meta={"run_id": "r"})
            with pytest.raises(NotAcknowledgedError):
                saver.put_writes(cfg(name, "", IDS[1]), [("x", 1)], "task")
    for name in THREADS:
        assert values(saver.get_tuple(cfg(name))) == {"a": name}


@pytest.mark.parametrize("ack", [None, ACKED], ids=["", "acknowledged"])
def test_a_slot_moves_while_its_thread_is_written(replicated: Cluster, make: Make, ack: Ack | None) -> None:
    """Half-moved it answers ASK, and TRYAGAIN where some keys of a thread are here and some are there."""
    saver = make(replicated.url, ack=ack)
    slot, source = _slot_of(replicated, "t"), replicated.node_of("t")
    target = (source + 1) % 3
    for i in range(2):
        put(saver, i, parent=i - 1 if i else None, log=list(range(i)))
        saver.put_writes(cfg("t", "", IDS[i]), [("x", i)], "task")
    replicated.begin_move(slot, source, target)
    put(saver, 2, parent=1, log=[0, 1])  # still here
    assert replicated.move_keys(slot, source, target, most=2) == 2
    moving = threading.Thread(target=_finish_soon, args=(replicated, slot, source, target))
    moving.start()
    put(saver, 3, parent=2, log=[0, 1, 2])  # neither here nor there, until the rest has moved
    saver.put_writes(cfg("t", "", IDS[3]), [("x", 3)], "task")
    moving.join()
    put(saver, 4, parent=3, log=[0, 1, 2, 3])  # there, but nobody has been told
    saver.put_writes(cfg("t", "", IDS[4]), [("x", 4)], "task")
    replicated.end_move(slot, target)
    put(saver, 5, parent=4, log=[0, 1, 2, 3, 4])
    found = saver.list(cfg())
    assert [len(values(each)["log"]) for each in found] == [5, 4, 3, 2, 1, 0]
    assert [writes(each) for each in found[1:3]] == [[("task", "x", 4)], [("task", "x", 3)]]
    there = {key for key in replicated.nodes[target].raw().scan_iter() if b"run:" not in key}
    assert there == {key for key in thread_keys(b"ckpt", "t") if key in there}
    assert len(there) == 5


def _slot_of(cluster: Cluster, name: str) -> int:
    with cluster.client() as client:
        slot: int = client.keyslot(f"{{{name}}}")
        return slot


def _finish_soon(cluster: Cluster, slot: int, source: int, target: int) -> None:
    """Move the rest once somebody has been sent away."""
    before = _refused(cluster)
    wait_until(lambda: _refused(cluster) > before, "nobody came")
    while cluster.move_keys(slot, source, target):
        pass


def _refused(cluster: Cluster) -> int:
    return sum(int(node.raw().info("stats")["total_error_replies"]) for node in cluster.nodes)


def test_slots_move_back_and_forth_while_runs_go_on(replicated: Cluster, make: Make) -> None:
    play = Play(make(replicated.url))
    home = {name: (_slot_of(replicated, name), replicated.node_of(name)) for name in THREADS}
    done = threading.Event()

    def wander() -> None:
        at = {name: node for name, (_, node) in home.items()}
        while not done.is_set():
            for name, (slot, _) in home.items():
                replicated.move_slots([slot], at[name], (at[name] + 1) % 3)
                at[name] = (at[name] + 1) % 3

    wandering = threading.Thread(target=wander)
    wandering.start()
    try:
        app = play.app(counting())
        for _ in range(2):
            for name in THREADS:
                found = play.invoke(app, {"round": 0, "log": []}, thread(name))
                assert found["log"][-len(WHOLE) :] == WHOLE
    finally:
        done.set()
        wandering.join()
    for name in THREADS:
        assert len(play.state(app, thread(name)).values["log"]) == 2 * len(WHOLE)
        assert len(ids(play.stored(name))) > 20
