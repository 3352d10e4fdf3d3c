"""The shape of the code: imports go one way, files and functions stay readable."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "redis_ckpt"
# A module may import those of lower layers, and of its own where the layer is a folder.
LAYERS = [
    {"errors", "_flow", "_expiry", "_embedded_keeper", "_shapes", "_process", "_recent", "_retry", "_urls"},
    {"_keys", "_versions", "_config", "embedded", "_messages"},
    {"_codec", "_scripts", "_source", "_delta", "_coalesce", "_copies", "_ack"},
    {"_packing", "_guards"},
    {"_direct", "_known", "_carriers", "serde", "_acked"},
    {"_making", "encryption"},
    {"_client", "_cluster"},
    {"_aclient"},
    {"policies"},
    {"_ops"},
    {"_upkeep"},
    {"_whole_threads"},
    {"_base"},
    {"saver", "aio"},
    {"__init__"},
    {"demo"},
]
LAYER = {module: n for n, layer in enumerate(LAYERS) for module in layer}


def module_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{a.name}" for a in node.names}
    names = set()
    for name in found:
        head, _, rest = name.partition(".")
        if head == "redis_ckpt":
            part = rest.partition(".")[0]
            names.add(part if part in LAYER else "__init__")
    return names


SOURCES = sorted(PACKAGE.rglob("*.py"))
ALL_PYTHON = [p for d in ("redis_ckpt", "tests", "examples", "bench") for p in sorted((ROOT / d).rglob("*.py"))]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    mine = module_of(path)
    for other in imports(path):
        assert LAYER[other] < LAYER[mine] or other == mine in ("_ops", "demo"), f"{mine} imports {other}"


@pytest.mark.parametrize("name", ["_flow", "errors"])
def test_flows_and_errors_import_nothing_of_ours(name: str) -> None:
    assert imports(PACKAGE / f"{name}.py") == set()


def test_operations_do_no_io() -> None:
    for path in (PACKAGE / "_ops").glob("*.py"):
        text = path.read_text("utf-8")
        for word in ("import redis\n", "asyncio", "socket", "_client", "await "):
            assert word not in text, f"{path.name} has {word!r}"


@pytest.mark.parametrize("path", ALL_PYTHON, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_are_of_a_size_that_one_can_live_in(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body
            if ast.get_docstring(node) is not None:
                body = body[1:]
            if body:
                lines = (body[-1].end_lineno or 0) - body[0].lineno + 1
                assert lines <= 45, f"{path.name}: {node.name} has {lines} lines"


def test_public_names_are_what_the_package_says() -> None:
    import redis_ckpt

    for name in redis_ckpt.__all__:
        assert getattr(redis_ckpt, name) is not None
    assert "RedisSaver" in redis_ckpt.__all__
