"""A cluster of three primaries, started from the same binaries as the single servers."""

from __future__ import annotations

import time
from pathlib import Path

import redis

from tests.servers import HOST, Server, start

SLOTS = 16384
SECONDS = 30.0


class Cluster:
    """Three primaries that share the slots."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.nodes: list[Server] = []
        for n in range(3):
            conf = directory / f"{kind}-nodes-{n}.conf"
            self.nodes.append(start(kind, "--cluster-enabled", "yes", "--cluster-config-file", str(conf)))
        for n, node in enumerate(self.nodes):
            slots = range(SLOTS * n // 3, SLOTS * (n + 1) // 3)
            node.raw().execute_command("CLUSTER ADDSLOTS", *slots)
            for other in self.nodes:
                node.raw().execute_command("CLUSTER MEET", HOST, other.port)
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + SECONDS
        while not all(self._is_ready(node) for node in self.nodes):
            assert time.monotonic() < deadline, "the cluster did not form"
            time.sleep(0.05)

    def _is_ready(self, node: Server) -> bool:
        info = node.raw().execute_command("CLUSTER INFO")
        text = info if isinstance(info, dict) else dict(line.split(":") for line in info.decode().split("\r\n") if line)
        return bool(text["cluster_state"] == "ok" and text["cluster_known_nodes"] == "3")

    @property
    def port(self) -> int:
        return self.nodes[0].port

    def client(self) -> redis.RedisCluster:
        return redis.RedisCluster(host=HOST, port=self.port)

    def flush(self) -> None:
        for node in self.nodes:
            node.raw().flushall()

    def stored(self) -> list[bytes]:
        return sorted(key for node in self.nodes for key in node.raw().scan_iter(match="*"))

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
