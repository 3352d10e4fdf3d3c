"""docs/reliability.md: its table comes from results, and what it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.campaigns import report
from tests.campaigns.plan import CAMPAIGNS
from tests.campaigns.results import Result, Setting, run

ROOT = Path(__file__).parents[2]
TEXT = report.DOCUMENT.read_text("utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


def _campaign(setting: Setting) -> Result:
    result = Result("kills of something", server="Valkey 9")
    result.add({"kills": setting.amount, "lost": 0, "torn": 0, "acknowledged put": 1200, "threads": 3}, [])
    result.add({"lost": 1}, ["one is lost"])
    return result


def test_the_table_is_made_of_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", "utf-8")
    monkeypatch.setattr(report, "DOCUMENT", document)
    run("worker-kills", _campaign, Setting("valkey", 200, 3, 7, tmp_path), "full", tmp_path / "out")
    for _ in range(2):  # to write it again changes nothing
        report.write(tmp_path / "out")
        text = document.read_text("utf-8")
        assert text.startswith(f"before\n{report.BEGIN}\n\nOn ")
        assert text.endswith(f"|\n\n{report.END}\nafter\n")
        assert "| **200** kills of something | 1,200 | 1 | 0 |  | 1 | threads 3 | Valkey 9, " in text
        assert "worker-kills --scale full --server valkey --seed 7`" in text
        assert "old" not in text


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_test_that_is_named_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_campaign_is_named_and_every_name_is_one() -> None:
    assert TEXT.count(report.BEGIN) == TEXT.count(report.END) == 1
    named = set(re.findall(r"campaigns? `([\w-]+)`|, `(memory-ttl)`", TEXT))
    assert {name for pair in named for name in pair if name} == set(CAMPAIGNS)
