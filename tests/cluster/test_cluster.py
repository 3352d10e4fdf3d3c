"""A thread is one slot, so everything works on a cluster; what spans threads goes to every primary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from redis_ckpt import RedisSaver, _scripts
from redis_ckpt._flow import Trip
from redis_ckpt._keys import thread_keys
from tests.cluster.servers import Cluster
from tests.savers import IDS, Facade, cfg, ids, put, values, writes

THREADS = [f"thread-{n}" for n in range(12)]


def test_every_operation_works_over_threads_of_all_nodes(on_cluster: Facade, cluster: Cluster) -> None:
    for thread in THREADS:
        put(on_cluster, 1, t=thread, a=thread, meta={"run_id": "run"})
        put(on_cluster, 2, t=thread, parent=1, a=thread + "!", meta={"run_id": "other"})
        on_cluster.put_writes(cfg(thread, "", IDS[2]), [("x", thread)], "task")
    assert all(list(node.raw().scan_iter(match="*")) for node in cluster.nodes)
    for thread in THREADS:
        found = on_cluster.get_tuple(cfg(thread))
        assert values(found) == {"a": thread + "!"}
        assert writes(found) == [("task", "x", thread)]
        assert ids(on_cluster.list(cfg(thread))) == [IDS[2], IDS[1]]
    assert sorted(info.thread_id for info in on_cluster.threads()) == sorted(THREADS)
    assert len(on_cluster.list(None)) == 2 * len(THREADS)
    on_cluster.delete_for_runs(["run"])
    assert ids(on_cluster.list(None)) == [IDS[2]] * len(THREADS)
    on_cluster.prune(THREADS)
    on_cluster.prune(THREADS[:6], strategy="delete")
    for thread in THREADS[6:]:
        on_cluster.delete_thread(thread)
    assert [key for key in cluster.stored() if b":run:" not in key] == []


def test_a_thread_is_copied_between_nodes(on_cluster: Facade, cluster: Cluster) -> None:
    for n in range(300):
        put(on_cluster, f"{IDS[1]}-{n:03}", t="source", ns="" if n % 2 else "sub:1", a=n, vers={"a": n})
    on_cluster.put_writes(cfg("source", "", f"{IDS[1]}-299"), [("x", 1)], "task")
    for target in THREADS:
        on_cluster.copy_thread("source", target)
        listed = on_cluster.list({"configurable": {"thread_id": target}})
        assert [t.checkpoint["channel_values"]["a"] for t in listed] == list(range(299, -1, -1))
        assert writes(on_cluster.get_tuple(cfg(target))) == [("task", "x", 1)]
        with pytest.raises(ValueError, match="has checkpoints"):
            on_cluster.copy_thread("source", target)
    on_cluster.copy_thread("missing", "nowhere")
    assert on_cluster.list(cfg("nowhere")) == []


def test_a_sweep_and_the_totals_reach_every_node(on_cluster: Facade, cluster: Cluster) -> None:
    for n, thread in enumerate(THREADS):
        for i in (1, 2, 3):
            put(on_cluster, i, t=thread, a=i, vers={"a": i})
        assert on_cluster.persist(thread) if n % 2 else on_cluster.expire(thread, 1000)
    total = on_cluster.stats()
    assert (total.threads, total.expiring, total.pinned, total.checkpoints.count) == (12, 6, 6, 36)
    report = on_cluster.sweep(keep_last=1, idle_for=3600)
    assert (report.threads, report.threads_removed, report.checkpoints, report.blobs) == (12, 0, 24, 24)
    assert report.bytes_freed == total.bytes - on_cluster.stats().bytes
    for thread in THREADS:
        assert on_cluster.expire(thread, None)
    assert on_cluster.sweep(idle_for=1).threads_removed == 12
    assert cluster.stored() == []


def test_a_copy_between_nodes_has_the_deadline_of_a_copy_on_one(cluster: Cluster) -> None:
    client = cluster.client()
    timed, plain = RedisSaver(redis_client=client, ttl=1000), RedisSaver(redis_client=client)

    def seconds(thread: str) -> set[int]:
        """In thousands, rounded up; 0 for none."""
        return {-(int(client.pttl(key)) // -1_000_000) for key in thread_keys(b"ckpt", thread)}

    put(timed, 1, t="source", a=1)
    timed.put_writes(cfg("source", "", IDS[1]), [("x", 1)], "task")
    cases: list[tuple[Callable[[], bool], int, int]] = [
        (lambda: True, 1, 0),
        (lambda: plain.expire("source", 3000), 3, 3),
        (lambda: plain.persist("source"), 0, 0),
    ]
    for say, by_timed, by_plain in cases:
        assert say()
        for saver, expected in ((timed, by_timed), (plain, by_plain)):
            for target in THREADS[:4]:
                saver.copy_thread("source", target)
                assert seconds(target) == {expected}
                put(plain, 2, t=target, a=2)
                assert seconds(target) == {expected}
                saver.delete_thread(target)
    client.close()


@pytest.fixture
def long_thread(cluster: Cluster) -> Iterator[tuple[RedisSaver, str]]:
    """A saver with a thread of 500 checkpoints, and the name of a thread on another node."""
    client = cluster.client()
    with RedisSaver(redis_client=client) as saver:
        saver.setup()
        for n in range(500):
            put(saver, f"{IDS[1]}-{n:03}", t="source", a=n, vers={"a": n})
        home = client.keyslot("{source}") * 3 // 16384
        yield saver, next(t for t in THREADS if client.keyslot(f"{{{t}}}") * 3 // 16384 != home)
    client.close()


def test_a_copy_between_nodes_shows_when_it_is_whole_and_not_before(
    long_thread: tuple[RedisSaver, str], cluster: Cluster
) -> None:
    saver, target = long_thread
    send, seen = saver._wire.send, set()

    def looking(trip: Trip) -> list[Any]:
        (whole,) = send([_scripts.get_tuple(thread_keys(b"ckpt", target), b"", b"")])
        seen.add(None if whole is None else whole[0])
        return send(trip)

    saver._wire.send = looking  # type: ignore[method-assign]
    saver.copy_thread("source", target)
    assert seen == {None, f"\x1f{IDS[1]}-499".encode()}
    assert not [key for key in cluster.stored() if b"copying" in key]


def test_a_copy_that_ended_on_the_way_is_not_in_the_way_of_the_next(
    long_thread: tuple[RedisSaver, str], cluster: Cluster
) -> None:
    saver, target = long_thread
    send, left = saver._wire.send, iter(range(12))

    def dying(trip: Trip) -> list[Any]:
        if next(left, None) is None:
            raise ConnectionError("the process ends here")
        return send(trip)

    saver._wire.send = dying  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        saver.copy_thread("source", target)
    saver._wire.send = send  # type: ignore[method-assign]
    abandoned = [key for key in cluster.stored() if b"copying" in key]
    assert abandoned
    assert all(0 < cluster.client().pttl(key) <= 3_600_000 for key in abandoned)
    assert saver.get_tuple(cfg(target)) is None
    assert [info.thread_id for info in saver.threads()] == ["source"]
    saver.copy_thread("source", target)
    assert len(list(saver.list(cfg(target)))) == 500


def test_scripts_that_a_node_has_forgotten_are_loaded_again(on_cluster: Facade, cluster: Cluster) -> None:
    for n, thread in enumerate(THREADS):
        for node in cluster.nodes:
            node.raw().script_flush()
        put(on_cluster, n % 9, t=thread, a=n, meta={"run_id": f"r{n}"})
        assert values(on_cluster.get_tuple(cfg(thread))) == {"a": n}


def test_a_client_for_one_server_works_where_a_proxy_hides_a_cluster(cluster: Cluster) -> None:
    """Every key of a thread lies in one slot: a plain client that is led to the right node never sees CROSSSLOT."""
    saver = RedisSaver(redis_client=_Led(cluster))
    put(saver, 1, t="x", a=1)
    saver.put_writes(cfg("x", "", IDS[1]), [("y", 2)], "task")
    assert values(saver.get_tuple(cfg("x"))) == {"a": 1}
    saver.copy_thread("x", "y")
    saver.prune(["x"])
    saver.delete_thread("x")
    assert values(saver.get_tuple(cfg("y"))) == {"a": 1}


class _Led(redis.Redis):
    """A client of one server that looks up the node of a command's first key, as a proxy would."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(port=cluster.port)
        self._cluster = cluster.client()

    def pipeline(self, transaction: bool = True) -> Any:  # type: ignore[override]
        return _LedPipeline(self)

    def execute_command(self, *args: object, **options: object) -> object:
        key = args[3] if args[0] == "EVALSHA" else args[1]
        node = self._cluster.get_node_from_key(key)
        assert node is not None
        if args[0] == "SCRIPT LOAD":
            return self._cluster.execute_command(*args)
        return node.redis_connection.execute_command(*args, **options)


class _LedPipeline:
    """Sends what is queued one after another."""

    def __init__(self, client: _Led) -> None:
        self._client = client
        self._queue: list[tuple[object, ...]] = []

    def execute_command(self, *args: object) -> None:
        self._queue.append(args)

    def execute(self, raise_on_error: bool) -> list[object]:
        replies: list[object] = []
        for args in self._queue:
            try:
                replies.append(self._client.execute_command(*args))
            except redis.ResponseError as error:
                replies.append(error)
        return replies
