"""A process that runs graphs until somebody kills it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.campaigns.graph import App, graph
from tests.campaigns.journal import AsyncSaver, Journal, SyncSaver, journaled
from tests.campaigns.runs import aturn, turn


def work(is_async: bool, url: str, journal_path: Path, thread_ids: Sequence[str], beats: Connection) -> None:
    """Go on with these threads, all at once and turn after turn; one byte is sent for each line of the journal."""
    lock = threading.Lock()

    def beat() -> None:
        with lock:
            beats.send_bytes(b".")

    journal = Journal(journal_path, beat)
    saver = journaled(is_async, url, journal)
    app = graph(saver, journal.started)
    if isinstance(saver, AsyncSaver):
        asyncio.run(_all(app, saver, thread_ids))
    else:
        with ThreadPoolExecutor(len(thread_ids)) as pool:
            list(pool.map(lambda thread_id: _for_ever(app, saver, thread_id), thread_ids))


def _for_ever(app: App, saver: SyncSaver, thread_id: str) -> None:
    while True:
        turn(app, saver, thread_id)


async def _all(app: App, saver: AsyncSaver, thread_ids: Sequence[str]) -> None:
    async def for_ever(thread_id: str) -> Any:
        while True:
            await aturn(app, saver, thread_id)

    await asyncio.gather(*map(for_ever, thread_ids))
