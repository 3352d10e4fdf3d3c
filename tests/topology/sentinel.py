"""A service of Sentinel: a primary, a replica and three sentinels, from the same binaries as the single servers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.cluster.servers import wait_until
from tests.servers import DISKLESS, HOST, Server, free_port, spawn, start

SERVICE = "it"
DOWN_AFTER_MS, FAILOVER_TIMEOUT_MS = 700, 3000


class SentinelSetup:
    """A service that survives the death of its primary, again and again."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.primary = start(kind, *DISKLESS)
        self.replica = self._replica_of(self.primary)
        self.sentinels = [self._sentinel(directory / f"{kind}-sentinel-{n}.conf") for n in range(3)]
        self._wait_until_in_sync()

    @property
    def url(self) -> str:
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    @property
    def hosts(self) -> list[tuple[str, int]]:
        return [(HOST, sentinel.port) for sentinel in self.sentinels]

    def kill_primary(self) -> None:
        """kill -9."""
        os.kill(self.primary.pid, signal.SIGKILL)
        self.primary.stop()

    def wait_for_failover(self) -> None:
        """Until the former replica is the primary for a majority of the sentinels."""
        wait_until(lambda: sum(self._primary_port(s) == self.replica.port for s in self.sentinels) >= 2, "no failover")
        wait_until(lambda: self.replica.raw().info("replication")["role"] == "master", "the replica was not promoted")
        self.primary, self.replica = self.replica, self.primary

    def heal(self) -> None:
        """Begin a new replica in the place of what was killed, and wait until it can take over."""
        self.replica = self._replica_of(self.primary)
        for sentinel in self.sentinels:
            sentinel.raw().execute_command("SENTINEL", "RESET", SERVICE)  # it would watch the dead one for ever
        self._wait_until_in_sync()

    def fail_over(self) -> None:
        """The death of the primary, and all until the next one can die."""
        self.kill_primary()
        self.wait_for_failover()
        self.heal()

    def flush(self) -> None:
        self.primary.raw().flushall()

    def stop(self) -> None:
        for server in (*self.sentinels, self.replica, self.primary):
            server.stop()

    def _replica_of(self, primary: Server) -> Server:
        return start(self.kind, *DISKLESS, "--replicaof", HOST, str(primary.port))

    def _sentinel(self, conf: Path) -> Server:
        port = free_port()
        lines = [
            f"port {port}",
            f"bind {HOST}",
            f"sentinel monitor {SERVICE} {HOST} {self.primary.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}",
        ]
        conf.write_text("\n".join(lines) + "\n", "utf-8")
        return spawn(self.kind, port, [str(conf), "--sentinel"])

    def _primary_port(self, sentinel: Server) -> int:
        found = sentinel.raw().execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return int(found[1]) if found else 0

    def _wait_until_in_sync(self) -> None:
        def is_ready() -> bool:
            replication = self.primary.raw().info("replication")
            online = sum(v["state"] == "online" for k, v in replication.items() if k.startswith("slave"))
            return online == 1 and all(self._knows_all(sentinel) for sentinel in self.sentinels)

        wait_until(is_ready, "the service did not form")

    def _knows_all(self, sentinel: Server) -> bool:
        reply = sentinel.raw().execute_command("SENTINEL", "MASTER", SERVICE)
        told = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
        found = {_text(k): _text(v) for k, v in told.items()}
        return (
            found["num-other-sentinels"] == "2"
            and found["num-slaves"] == "1"
            and int(found["port"]) == self.primary.port
            and "down" not in found["flags"]
        )


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
