"""Connections that break in every way, and scripts that are forgotten all the time."""

from __future__ import annotations

import threading
from typing import Any

from tests.campaigns.chaos import Chaos
from tests.campaigns.results import Result, Setting, product
from tests.campaigns.runs import Runs, while_they_go_on
from tests.integration.long_runs import PATIENT
from tests.servers import start

SOCKET_SECONDS = 2.0  # after which a link that has gone silent is given up
FLUSH_SECONDS = 0.05


def proxy(setting: Setting) -> Result:
    """Runs of both colours through a proxy that cuts, delays and splits at random."""
    result = Result("seconds behind a proxy that splits, delays, resets, closes and silences connections at random")
    server = start(setting.kind)
    try:
        result.server = product(server)
        with Chaos(server.port, setting.seed) as chaos:
            options: dict[str, Any] = {"retry": PATIENT, "connection_args": {"socket_timeout": SOCKET_SECONDS}}
            with Runs(chaos.url, setting.folder, setting.width, check_url=server.url, **options) as runs:
                while_they_go_on(runs, setting.amount)
        runs.finish(result)
        result.add({"seconds": setting.amount} | chaos.counts, [])
    finally:
        server.stop()
    return result


def script_flush(setting: Setting) -> Result:
    """SCRIPT FLUSH every 50 ms while runs go on."""
    result = Result("seconds with SCRIPT FLUSH every 50 ms")
    server = start(setting.kind)
    done = threading.Event()

    def forget() -> None:
        with server.raw() as raw:
            while not done.wait(FLUSH_SECONDS):
                raw.script_flush()
                result.add({"flushes": 1}, [])

    forgetting = threading.Thread(target=forget)
    try:
        result.server = product(server)
        with Runs(server.url or "", setting.folder, setting.width) as runs:
            forgetting.start()
            while_they_go_on(runs, setting.amount)
            done.set()
            forgetting.join()
        runs.finish(result)
        result.add({"seconds": setting.amount}, [])
    finally:
        done.set()
        server.stop()
    return result
