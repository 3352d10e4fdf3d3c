"""Writes the table of campaigns in docs/reliability.md from their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.campaigns.plan import CAMPAIGNS

DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- campaigns: python -m tests.campaigns report -->", "<!-- end of campaigns -->"
PROMISES = ("lost", "torn", "run again")
ACKNOWLEDGED = ("acknowledged put", "acknowledged writes")
COLUMNS = ("what is done", "acknowledged", *PROMISES, "faults", "what else was counted", "server, date", "command")


def write(folder: Path) -> None:
    """Put the table between its two markers."""
    text = DOCUMENT.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{table(folder)}\n{END}{after}", "utf-8")


def table(folder: Path) -> str:
    """A row for each result, in the order of the campaigns."""
    records = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    records.sort(key=lambda record: (list(CAMPAIGNS).index(record["campaign"]), record["server"]))
    machines = {f"{record['cores']} cores, Python {record['python']}" for record in records}
    head = f"| {' | '.join(COLUMNS)} |\n|---|---:|---:|---:|---:|---:|---|---|---|\n"
    return f"On {'; '.join(sorted(machines))}.\n\n{head}{''.join(map(_row, records))}"


def _row(record: dict[str, Any]) -> str:
    counts, plan = record["counts"], CAMPAIGNS[record["campaign"]]
    shown = {*PROMISES, *ACKNOWLEDGED, plan.counted}
    acknowledged = sum(counts.get(name, 0) for name in ACKNOWLEDGED)
    cells = [
        f"**{counts[plan.counted]:,}** {record['done']}",
        f"{acknowledged:,}" if acknowledged else "",
        *(str(counts[name]) if name in counts else "" for name in PROMISES),
        str(len(record["faults"])),
        "; ".join(f"{name} {count:,}" for name, count in counts.items() if name not in shown),
        f"{record['server']}, {record['date']}, {record['seconds']} s",
        f"`{record['command']}`",
    ]
    return f"| {' | '.join(cells)} |\n"
