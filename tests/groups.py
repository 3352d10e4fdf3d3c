"""A cluster, or a service of Sentinel, in the place of one server: the behaviour suite runs on these too.

Not part of it are tests that look at one server's sockets or commands (a proxy, MONITOR, counted round trips), at its
scripts or at databases other than 0, and those that fill it with much, whose point one server shows as well.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

from tests.cluster.servers import Cluster
from tests.servers import HOST, Server
from tests.topology.sentinel import SentinelSetup

GROUP_KINDS = ("cluster", "sentinel")
KIND = "valkey"  # of the servers in a group

SUITE = frozenset(
    {
        "test_concurrency",
        "test_conflicts",
        "test_conformance",
        "test_delta_chains",
        "test_damage",
        "test_encryption",
        "test_expiry_reads",
        "test_faults",
        "test_graphs_agent",
        "test_graphs_delta",
        "test_graphs_functional",
        "test_graphs_interrupts",
        "test_graphs_moving",
        "test_graphs_send",
        "test_graphs_subgraphs",
        "test_graphs_time",
        "test_keep_last",
        "test_limits",
        "test_reads",
        "test_stats",
        "test_threads",
        "test_values",
        "test_verify",
        "test_writes",
    }
)
"""The modules of the behaviour suite."""


class ClusterServer(Server):
    """Three primaries. Clients of it are a cluster's, and have no other database than 0."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ckpt-cluster-")
        self._cluster = Cluster(KIND, Path(self._folder.name))
        super().__init__("cluster", self._cluster.url)

    def raw(self, **kwargs: Any) -> Any:
        kwargs.pop("db", None)
        client = redis.RedisCluster(host=HOST, port=self._cluster.port, **kwargs)
        self._clients.append(client)  # type: ignore[arg-type]  # it is closed like the others
        return client

    def araw(self, **kwargs: Any) -> Any:
        kwargs.pop("db", None)
        return redis.asyncio.RedisCluster(host=HOST, port=self._cluster.port, **kwargs)

    def flush(self) -> None:
        self._cluster.flush()

    def databases(self) -> list[int]:
        return [0]

    def stop(self) -> None:
        self.release()
        self._cluster.stop()
        self._folder.cleanup()


class SentinelServer(Server):
    """A primary with its replica and three sentinels."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ckpt-sentinel-")
        self._service = SentinelSetup(KIND, Path(self._folder.name))
        super().__init__("sentinel", self._service.url)

    def raw(self, **kwargs: Any) -> redis.Redis:
        return self._service.primary.raw(**kwargs)

    def araw(self, **kwargs: Any) -> redis.asyncio.Redis:
        return self._service.primary.araw(**kwargs)

    def flush(self) -> None:
        self._service.flush()

    def databases(self) -> list[int]:
        return self._service.primary.databases()

    def release(self) -> None:
        self._service.primary.release()

    def stop(self) -> None:
        self._service.stop()
        self._folder.cleanup()


def start_group(kind: str) -> Server:
    """Start a group of servers; answers when it answers."""
    return ClusterServer() if kind == "cluster" else SentinelServer()
