"""What a campaign is given, and what it leaves behind: one JSON file for each campaign and kind of server."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.servers import Server


@dataclass(frozen=True)
class Setting:
    """How much is to be done, on which kind of server, and where files may be put.

    Attributes:
        amount: Times, runs or seconds, as the campaign says.
        width: Runs at once, in each colour.
    """

    kind: str
    amount: int
    width: int
    seed: int
    folder: Path


@dataclass
class Result:
    """What was done and what went wrong.

    Attributes:
        done: What happened, for the report.
        counts: Figures by name; `lost`, `torn` and `run again` are there for each campaign that looks for them.
        faults: What went wrong, as text; empty in a campaign that kept its promises.
    """

    done: str
    counts: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    server: str = ""

    def add(self, counts: Mapping[str, int], faults: list[str]) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.faults += faults


Campaign = Callable[[Setting], Result]


def product(server: Server) -> str:
    """Name and version of a server that answers."""
    about = server.raw().info("server")
    return f"Valkey {about['valkey_version']}" if "valkey_version" in about else f"Redis {about['redis_version']}"


def run(name: str, campaign: Campaign, setting: Setting, scale: str, out: Path) -> Result:
    """Run a campaign and write what came of it."""
    begun = time.monotonic()
    result = campaign(setting)
    record: dict[str, Any] = {
        "campaign": name,
        "command": f"python -m tests.campaigns {name} --scale {scale} --server {setting.kind} --seed {setting.seed}",
        "scale": scale,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "seconds": round(time.monotonic() - begun),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **asdict(result),
    }
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}-{setting.kind}.json"
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return result
