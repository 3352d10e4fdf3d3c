"""README and the pages beside it tell the truth: its code runs as it stands, and the tests that it names exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = "\n".join((ROOT / page).read_text("utf-8") for page in ("README.md", "SECURITY.md", "docs/reliability.md"))
BLOCKS = re.findall(r"```python\n(.+?)```", PAGES, re.S)
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGES)))


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_code_runs_as_it_stands(code: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    promised = re.findall(r"print\(.*\)  # (.+)", code)
    assert done.stdout.splitlines() == promised


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_test_that_is_named_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "lua/README.md",
        "docs/upkeep.md",
        "docs/performance.md",
        "docs/reliability.md",
    ],
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / page).parent.joinpath(link).exists(), link
