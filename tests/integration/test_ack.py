"""ack=Ack(...): put and put_writes return when others have the write, or say that too few have."""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import valkey
import valkey.asyncio

from redis_ckpt import Ack, AsyncRedisSaver, NotAcknowledgedError, RedisSaver
from tests.proxy import Proxy
from tests.savers import IDS, Facade, LoopThread, arguments, cfg, put, values, wait_until, writes
from tests.servers import DISKLESS, HOST, REAL_KINDS, start

SOON = Ack(replicas=1, timeout=0.05)  # for a replica that does not answer
PATIENT = Ack(replicas=1, timeout=30.0)


class Pair:
    """A primary and its replica."""

    def __init__(self, kind: str) -> None:
        self.primary = start(kind, *DISKLESS)
        self.replica = start(kind, *DISKLESS, "--replicaof", HOST, str(self.primary.port))
        wait_until(lambda: self._replicas() == 1)

    def _replicas(self) -> int:
        found = self.primary.raw().info("replication")
        return sum(found[key]["state"] == "online" for key in found if key.startswith("slave"))

    @contextmanager
    def silent_replica(self) -> Iterator[None]:
        os.kill(self.replica.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.replica.pid, signal.SIGCONT)

    def waits(self) -> int:
        return int(self.primary.raw().info("commandstats").get("cmdstat_wait", {"calls": 0})["calls"])

    def stop(self) -> None:
        self.replica.stop()
        self.primary.stop()


@pytest.fixture(scope="module", params=REAL_KINDS)
def pairs(request: pytest.FixtureRequest) -> Iterator[Pair]:
    pair = Pair(request.param)
    yield pair
    pair.stop()


@pytest.fixture
def pair(pairs: Pair) -> Pair:
    pairs.primary.flush()
    return pairs


MakeAcked = Callable[..., Facade]


@pytest.fixture
def make(pair: Pair, colour: str, loop_thread: LoopThread) -> Iterator[MakeAcked]:
    made: list[Facade] = []

    def build(ack: Ack, **options: Any) -> Facade:
        options = {"redis_url": pair.primary.url} | options
        made.append(Facade((RedisSaver if colour == "sync" else AsyncRedisSaver)(ack=ack, **options), loop_thread))
        return made[-1]

    yield build
    for facade in made:
        facade.close()


def test_what_returned_is_on_the_replica(pair: Pair, make: MakeAcked) -> None:
    saver = make(PATIENT)
    with RedisSaver(pair.replica.url) as reader:
        for i in range(5):
            config = put(saver, i, parent=i - 1 if i else None, a=i)
            saver.put_writes(config, [("x", i)], "task")
            # a replica has it when it has acknowledged it, and shows it when it has worked it off
            shown = cfg("t", "", IDS[i])
            wait_until(lambda shown=shown: reader.get_tuple(shown) is not None)  # type: ignore[misc]
            wait_until(lambda shown=shown: bool(writes(reader.get_tuple(shown))))  # type: ignore[misc]


def test_the_wait_takes_no_round_trip_of_its_own(pair: Pair, make: MakeAcked) -> None:
    with Proxy(pair.primary.port) as proxy:
        saver = make(PATIENT, redis_url=proxy.url)
        saver.setup()
        before = proxy.counts()
        config = put(saver, 1, a=1, meta={"run_id": "run"})
        saver.put_writes(config, [("x", 1)], "task")
        assert (proxy.counts() - before).trips == 2


def test_a_replica_that_is_silent_is_told_and_the_write_stands(pair: Pair, make: MakeAcked) -> None:
    saver = make(SOON)
    saver.setup()
    with pair.silent_replica():
        with pytest.raises(NotAcknowledgedError, match="0 of 1 replicas") as caught:
            put(saver, 1, a=1)
        error = pickle.loads(pickle.dumps(caught.value))
        assert (error.thread_id, error.checkpoint_ns, error.checkpoint_id, error.replicas) == ("t", "", IDS[1], 0)
        with pytest.raises(NotAcknowledgedError, match="stands on the primary"):
            saver.put_writes(cfg("t", "", IDS[1]), [("x", 1)], "task")
        found = saver.get_tuple(cfg())
        assert (values(found), writes(found)) == ({"a": 1}, [("task", "x", 1)])
        for _ in range(2):  # a repeated call asks again, though it changes nothing, over any connection
            with pytest.raises(NotAcknowledgedError):
                put(make(SOON), 1, a=1)
            with pytest.raises(NotAcknowledgedError):
                make(SOON).put_writes(cfg("t", "", IDS[1]), [("x", 2)], "task")
    patient = make(PATIENT)
    put(patient, 1, a=1)
    patient.put_writes(cfg("t", "", IDS[1]), [("x", 2)], "task")
    assert writes(patient.get_tuple(cfg())) == [("task", "x", 1)]


def test_forgotten_scripts_are_loaded_and_waited_for(pair: Pair, make: MakeAcked) -> None:
    saver = make(PATIENT)
    put(saver, 1, a=1)
    pair.primary.raw().script_flush()
    put(saver, 2, parent=1, a=2)
    pair.primary.raw().script_flush()
    saver.put_writes(cfg("t", "", IDS[2]), [("x", 1)], "task")
    with pair.silent_replica():
        pair.primary.raw().script_flush()
        with pytest.raises(NotAcknowledgedError):
            put(make(SOON), 3, parent=2, a=3)


def test_a_server_that_cannot_wait_is_quoted(pair: Pair, make: MakeAcked) -> None:
    """Redis 6.2 does not know WAITAOF; others want the append-only file to be on."""
    saver = make(Ack(replicas=0, fsync=True))
    with pytest.raises(NotAcknowledgedError, match=r"refused to wait.*(unknown command|appendonly is disabled)"):
        put(saver, 1, a=1)
    assert values(saver.get_tuple(cfg())) == {"a": 1}


@pytest.mark.parametrize("pairs", ["valkey"], indirect=True)
def test_on_disk(make: MakeAcked, tmp_path: Path) -> None:
    server = start("valkey", "--dir", str(tmp_path), "--appendonly", "yes")
    try:
        put(make(Ack(replicas=0, fsync=True, timeout=30), redis_url=server.url), 1, a=1)
        with pytest.raises(NotAcknowledgedError, match=r"0 of 1 replicas on their disks, and the primary has written"):
            put(make(Ack(replicas=1, fsync=True, timeout=2.5), redis_url=server.url), 2, a=1)
    finally:
        server.stop()


async def test_calls_of_many_tasks_share_their_waits(pair: Pair) -> None:
    async with AsyncRedisSaver.from_conn_string(pair.primary.url, ack=PATIENT) as saver:
        await saver.asetup()
        before = pair.waits()
        await asyncio.gather(*(saver.aput(*arguments(1, t=f"t{n}", a=n)) for n in range(200)))
        assert 1 <= pair.waits() - before <= 100
        assert values(await saver.aget_tuple(cfg("t199"))) == {"a": 199}


async def test_reads_do_not_stand_behind_waits(pair: Pair) -> None:
    async with AsyncRedisSaver.from_conn_string(pair.primary.url, ack=PATIENT) as saver:
        await saver.aput(*arguments(1, a=1))
        with pair.silent_replica():
            puts = [asyncio.create_task(saver.aput(*arguments(1, t=f"t{n}", a=n))) for n in range(8)]
            for n in (0, 1):  # the others stand behind these two
                while await saver.aget_tuple(cfg(f"t{n}")) is None:
                    pass
            assert not any(task.done() for task in puts)
        await asyncio.gather(*puts)


def test_a_client_that_is_asked_by_its_public_pipeline_waits_on_one_connection(
    pair: Pair, make: MakeAcked, colour: str, loop_thread: LoopThread
) -> None:
    port = pair.primary.port
    kind: Any = valkey.Valkey if colour == "sync" else valkey.asyncio.Valkey
    client = kind(port=port, socket_timeout=60)
    saver = make(SOON, redis_url=None, redis_client=client)
    saver.setup()
    with pair.silent_replica(), pytest.raises(NotAcknowledgedError):
        put(saver, 1, a=1)
    put(make(PATIENT, redis_url=None, redis_client=client), 1, a=1)
    if colour == "sync":
        client.close()
    else:
        loop_thread.run(client.aclose())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"replicas": 0}, ValueError),
        ({"replicas": -1}, ValueError),
        ({"replicas": True}, TypeError),
        ({"replicas": "1"}, TypeError),
        ({"fsync": 1}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"timeout": math.inf}, ValueError),
        ({"timeout": math.nan}, ValueError),
        ({"timeout": True}, TypeError),
        ({"timeout": "1"}, TypeError),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="Ack"):
        Ack(**options)


def test_something_else_than_an_ack_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Ack\(\.\.\.\)"):
        RedisSaver("redis://nowhere", ack=1)  # type: ignore[arg-type]
