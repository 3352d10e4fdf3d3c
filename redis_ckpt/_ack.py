"""Acknowledgements: a write that returns only when others have it too."""

from __future__ import annotations

import math
from dataclasses import dataclass

from redis_ckpt._config import Target
from redis_ckpt._flow import Reply, Wait
from redis_ckpt.errors import NotAcknowledgedError

MARGIN_SECONDS = 1.0  # by which a connection waits longer for a reply than the server for the acknowledgements


@dataclass(frozen=True)
class Ack:
    """What `put` and `put_writes` wait for before they return, in the round trip that writes.

    Args:
        replicas: Replicas that must have the write (WAIT). With `fsync` they must have it on disk.
        fsync: Whether the primary must have it on disk, in its append-only file (WAITAOF: from Redis 7.2 and Valkey
            7.2 on, with `appendonly yes`; with `appendfsync everysec` that takes up to a second).
        timeout: Seconds to wait at most.

    Too few by then: `NotAcknowledgedError`. The write stands all the same.

    Raises:
        TypeError: A value is of another type.
        ValueError: A value is out of range, or there is nothing to wait for.

    Source: the commands WAIT and WAITAOF.
    """

    replicas: int = 1
    fsync: bool = False
    timeout: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.replicas, int) or isinstance(self.replicas, bool):
            raise TypeError(f"replicas of Ack must be an int, not {self.replicas!r}")
        if not isinstance(self.fsync, bool):
            raise TypeError(f"fsync of Ack must be a bool, not {self.fsync!r}")
        if not isinstance(self.timeout, (int, float)) or isinstance(self.timeout, bool):
            raise TypeError(f"timeout of Ack must be a number of seconds, not {self.timeout!r}")
        if self.replicas < 0 or not (self.replicas or self.fsync):
            raise ValueError(f"Ack must wait for something: replicas=1 or more, or fsync=True, not {self!r}")
        if not 0.001 <= self.timeout < math.inf:  # 0 would mean for ever
            raise ValueError(f"timeout of Ack must be 0.001 seconds or more, and finite, not {self.timeout!r}")

    @property
    def command(self) -> Wait:
        """What is sent behind the write."""
        replicas, ms = b"%d" % self.replicas, b"%d" % math.ceil(self.timeout * 1000)
        return Wait(("WAITAOF", b"1", replicas, ms) if self.fsync else ("WAIT", replicas, ms))

    def check(self, reply: Reply, target: Target) -> None:
        """Look at the answer.

        Raises:
            NotAcknowledgedError: Too few have the write.
        """
        if isinstance(reply, Exception):
            raise NotAcknowledgedError(*target, f"the server refused to wait for acknowledgements: {reply}") from reply
        on_disk, replicas = reply if isinstance(reply, list) else (0, reply)
        if replicas < self.replicas or on_disk < int(self.fsync):
            by = f"{replicas} of {self.replicas} replicas" + (" on their disks" if self.fsync else "")
            own = f", and the primary has{'' if on_disk else ' not'} written it to disk" if self.fsync else ""
            raise NotAcknowledgedError(*target, f"after {self.timeout} s it was acknowledged by {by}{own}", replicas)
