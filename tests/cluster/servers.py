"""A cluster of three primaries, with a replica each if asked for, from the same binaries as the single servers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import redis
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.servers import DISKLESS, HOST, Server, start

SLOTS = 16384
SECONDS = 60.0
NODE_TIMEOUT_MS = 1000


class Cluster:
    """Three primaries that share the slots; those with replicas survive a kill -9, again and again."""

    def __init__(self, kind: str, directory: Path, replicas: int = 0) -> None:
        self.kind = kind
        self._directory = directory
        self._made = 0
        self.nodes = [self._node() for _ in range(3)]
        self.replicas: list[Server] = []
        for n, node in enumerate(self.nodes):
            slots = range(SLOTS * n // 3, SLOTS * (n + 1) // 3)
            node.raw().execute_command("CLUSTER ADDSLOTS", *slots)
            for other in self.nodes:
                node.raw().execute_command("CLUSTER MEET", HOST, other.port)
        self._wait_until_formed()
        for n in range(3 * replicas):
            self.replicas.append(self._join(self.nodes[n % 3]))
        self._wait_until_formed()

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    @property
    def port(self) -> int:
        return self.nodes[0].port

    def client(self, **options: Any) -> redis.RedisCluster:
        return redis.RedisCluster(host=HOST, port=self.port, **options)

    def node_of(self, thread_id: str) -> int:
        """Which of the primaries holds a thread, while no slot has moved."""
        with self.client() as client:
            slot: int = client.keyslot(f"{{{thread_id}}}")
        return next(n for n in range(3) if slot < SLOTS * (n + 1) // 3)

    def flush(self) -> None:
        for node in self.nodes:
            node.raw().flushall()

    def stored(self) -> list[bytes]:
        return sorted(key for node in self.nodes for key in node.raw().scan_iter(match="*"))

    def stop(self) -> None:
        for node in (*self.replicas, *self.nodes):
            node.stop()

    # Failover.

    def kill_primary(self, n: int) -> None:
        """kill -9."""
        os.kill(self.nodes[n].pid, signal.SIGKILL)
        self.nodes[n].stop()

    def wait_for_failover(self, n: int) -> None:
        """Until a replica has taken the place of primary n."""
        found: list[Server] = []

        def is_over() -> bool:
            found[:] = [r for r in self.replicas if r.raw().info("replication")["role"] == "master"]
            return bool(found) and all(_state(node) == "ok" for node in self._alive())

        wait_until(is_over, "no failover")
        self.replicas.remove(found[0])
        self.nodes[n] = found[0]

    def heal(self, n: int) -> None:
        """Begin a new replica of primary n in the place of what was killed, and wait until it can take over."""
        for node in self._alive():
            for line in _text(node.raw().execute_command("CLUSTER NODES")).splitlines():
                if "fail" in line.split()[2].split(","):
                    node.raw().execute_command("CLUSTER FORGET", line.split()[0])
        self.replicas.append(self._join(self.nodes[n]))
        self._wait_until_formed()

    # Slots on their way from one node to another, as redis-cli moves them.

    def begin_move(self, slot: int, source: int, target: int) -> None:
        """From here on the slot is half at one node and half at another."""
        there, here = self._id(self.nodes[target]), self._id(self.nodes[source])
        self.nodes[target].raw().execute_command("CLUSTER SETSLOT", slot, "IMPORTING", here)
        self.nodes[source].raw().execute_command("CLUSTER SETSLOT", slot, "MIGRATING", there)

    def move_keys(self, slot: int, source: int, target: int, most: int = 1000) -> int:
        """Move so many keys; answers how many there were to move."""
        raw = self.nodes[source].raw()
        keys = raw.execute_command("CLUSTER GETKEYSINSLOT", slot, most)
        if keys:
            raw.execute_command("MIGRATE", HOST, self.nodes[target].port, "", 0, 5000, "KEYS", *keys)
        return len(keys)

    def end_move(self, slot: int, target: int) -> None:
        """Tell everybody."""
        there = self._id(self.nodes[target])
        for node in (self.nodes[target], *self.nodes):
            node.raw().execute_command("CLUSTER SETSLOT", slot, "NODE", there)

    def move_slots(self, slots: Iterable[int], source: int, target: int) -> None:
        """Move slots with all that is in them."""
        for slot in slots:
            self.begin_move(slot, source, target)
            while self.move_keys(slot, source, target):
                pass
            self.end_move(slot, target)

    def _node(self) -> Server:
        self._made += 1
        conf = self._directory / f"{self.kind}-nodes-{self._made}.conf"
        options = ["--cluster-enabled", "yes", "--cluster-config-file", str(conf)]
        options += ["--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--cluster-allow-replica-migration", "no"]
        if self.kind == "redis62":
            options[-2:] = ["--cluster-migration-barrier", "9"]
        return start(self.kind, *options, *DISKLESS)

    def _join(self, primary: Server) -> Server:
        replica = self._node()
        replica.raw().execute_command("CLUSTER MEET", HOST, primary.port)
        name = self._id(primary)
        wait_until(lambda: name in _text(replica.raw().execute_command("CLUSTER NODES")), "it did not meet the others")
        replica.raw().execute_command("CLUSTER REPLICATE", name)
        return replica

    def _alive(self) -> list[Server]:
        return [node for node in (*self.nodes, *self.replicas) if node.is_alive]

    def _id(self, node: Server) -> str:
        return _text(node.raw().execute_command("CLUSTER MYID"))

    def _wait_until_formed(self) -> None:
        everybody = [*self.nodes, *self.replicas]

        def is_formed() -> bool:
            for node in everybody:
                lines = _text(node.raw().execute_command("CLUSTER NODES")).splitlines()
                flags = [line.split()[2] for line in lines]
                if len(lines) != len(everybody) or any("fail" in f or "handshake" in f for f in flags):
                    return False
                if sum("slave" in f for f in flags) != len(self.replicas) or _state(node) != "ok":
                    return False
            return all(r.raw().info("replication")["master_link_status"] == "up" for r in self.replicas)

        wait_until(is_formed, "the cluster did not form")


def _state(node: Server) -> str:
    info = node.raw().execute_command("CLUSTER INFO")
    return str(info["cluster_state"] if isinstance(info, dict) else info.decode().split("\r\n")[0].partition(":")[2])


def _text(reply: Any) -> str:
    if isinstance(reply, dict):  # what redis-py has made of CLUSTER NODES
        return "\n".join(f"{each['node_id']} {name} {each['flags']}" for name, each in reply.items())
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def wait_until(condition: Callable[[], bool], failure: str) -> None:
    """Ask until it holds; servers may be starting, or gone, meanwhile."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            if condition():
                return
        except (RedisConnectionError, redis.ResponseError):
            pass
        assert time.monotonic() < deadline, failure
        time.sleep(0.05)
