"""Runs a part of the benchmarks in a process of its own, and ends it in an orderly way when it must end early."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import FrameType

from bench.results import ROOT


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def stop_in_order() -> None:
    """Let SIGTERM do what Ctrl-C does, so that servers are stopped and folders removed on the way out."""
    signal.signal(signal.SIGTERM, _interrupt)


def run(*arguments: str) -> None:
    """Run this Python with the arguments.

    Raises:
        CalledProcessError: It ended with an error.
    """
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, cwd=ROOT) as child:
        try:
            code = child.wait()
        except BaseException:
            child.terminate()
            child.wait()  # it stops its servers now; the block does not wait after Ctrl-C
            raise
    if code:
        raise subprocess.CalledProcessError(code, command)
