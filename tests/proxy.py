"""A TCP proxy on the loopback that counts round trips and bytes, and can break connections on purpose.

A round trip is a burst of requests that was answered: bytes from the client that follow bytes from the server (or
nothing) begin a new one.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType

from tests.servers import HOST

CHUNK = 1 << 16


@dataclass
class Counts:
    """What went through, over all connections or over one."""

    trips: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    connections: int = 0

    def __sub__(self, other: Counts) -> Counts:
        return Counts(
            self.trips - other.trips,
            self.bytes_up - other.bytes_up,
            self.bytes_down - other.bytes_down,
            self.connections - other.connections,
        )


@dataclass(eq=False)
class Link:
    """One client connection and its twin to the server."""

    client: socket.socket
    server: socket.socket
    counts: Counts = field(default_factory=lambda: Counts(connections=1))
    client_spoke_last: bool = False
    delayed: deque[tuple[float, bytes]] = field(default_factory=deque)


class Proxy:
    """`with Proxy(server.port) as proxy:` then connect to `proxy.url`."""

    def __init__(self, upstream_port: int, *, delay: float = 0.0) -> None:
        self.delay = delay
        """Seconds that each answer is held back; requests pass at once."""
        self.listen: Callable[[bytes], object] | None = None
        """Is told all that clients send."""
        self.links: list[Link] = []
        self._closed = Counts()
        self._upstream = (HOST, upstream_port)
        self._lock = threading.RLock()
        self._swallow = 0
        self._refuse = False
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server((HOST, 0), backlog=1024)
        self._wake_r, self._wake_w = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_r, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)
        self._stopping = False

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        self._wake_w.send(b"x")
        self._thread.join()
        self.cut()
        self._selector.close()
        for sock in (self._listener, self._wake_r, self._wake_w):
            sock.close()

    def counts(self) -> Counts:
        """Everything since the start, closed connections included."""
        with self._lock:
            every = [self._closed, *(link.counts for link in self.links)]
            return Counts(
                sum(c.trips for c in every),
                sum(c.bytes_up for c in every),
                sum(c.bytes_down for c in every),
                sum(c.connections for c in every),
            )

    @contextlib.contextmanager
    def measure(self) -> Iterator[Counts]:
        """Count what a block sends; the numbers stand in the yielded object when it is left."""
        before, result = self.counts(), Counts()
        yield result
        vars(result).update(vars(self.counts() - before))

    def cut(self) -> None:
        """Close every connection that is open now; new ones are accepted."""
        with self._lock:
            for link in list(self.links):
                self._drop(link)

    def lose_replies(self, count: int = 1) -> None:
        """Close the connection in place of the next `count` answers: the server did the work, the client can't know."""
        with self._lock:
            self._swallow = count

    def refuse(self, refuse: bool = True) -> None:
        """Close new connections at once, as an unreachable server would."""
        self._refuse = refuse

    def _serve(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(self._patience()):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._wake_r:
                    self._wake_r.recv(CHUNK)
                elif isinstance(key.data, tuple):
                    self._forward(*key.data)
            self._send_delayed()

    def _patience(self) -> float | None:
        """Seconds until the next delayed answer is due; None when there is none."""
        with self._lock:
            due = [link.delayed[0][0] for link in self.links if link.delayed]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._refuse:
            client.close()
            return
        server = socket.create_connection(self._upstream)
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(client, server)
        with self._lock:
            self.links.append(link)
            self._selector.register(client, selectors.EVENT_READ, (link, True))
            self._selector.register(server, selectors.EVENT_READ, (link, False))

    def _forward(self, link: Link, from_client: bool) -> None:
        with self._lock:
            if link not in self.links:
                return
            try:
                data = (link.client if from_client else link.server).recv(CHUNK)
                if not data:
                    self._drop(link)
                elif from_client:
                    if self.listen is not None:
                        self.listen(data)
                    self._count_up(link, len(data))
                    link.server.sendall(data)
                else:
                    self._answer(link, data)
            except OSError:
                self._drop(link)

    def _count_up(self, link: Link, size: int) -> None:
        if not link.client_spoke_last:
            link.counts.trips += 1
            link.client_spoke_last = True
        link.counts.bytes_up += size

    def _answer(self, link: Link, data: bytes) -> None:
        if self._swallow:
            self._swallow -= 1
            self._drop(link)
            return
        link.client_spoke_last = False
        link.counts.bytes_down += len(data)
        if self.delay:
            link.delayed.append((time.monotonic() + self.delay, data))
        else:
            link.client.sendall(data)

    def _send_delayed(self) -> None:
        now = time.monotonic()
        with self._lock:
            for link in list(self.links):
                try:
                    while link.delayed and link.delayed[0][0] <= now:
                        link.client.sendall(link.delayed.popleft()[1])
                except OSError:
                    self._drop(link)

    def _drop(self, link: Link) -> None:
        self.links.remove(link)
        self._closed = Counts(
            self._closed.trips + link.counts.trips,
            self._closed.bytes_up + link.counts.bytes_up,
            self._closed.bytes_down + link.counts.bytes_down,
            self._closed.connections + link.counts.connections,
        )
        for sock in (link.client, link.server):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(sock)
            sock.close()
