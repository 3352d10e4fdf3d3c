"""The wheel carries all that is needed: built, installed into an empty environment, and used."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from redis_ckpt import _scripts

ROOT = Path(__file__).parents[2]
USE = """
import json, redis_ckpt, redis_ckpt._scripts as scripts
from redis_ckpt import RedisSaver
checkpoint = {"v": 4, "id": "1", "ts": "", "channel_values": {"a": 1}, "channel_versions": {"a": 1},
              "versions_seen": {}, "updated_channels": None}
config = {"configurable": {"thread_id": "t"}}
with RedisSaver("embedded://") as saver:
    saver.put(config, checkpoint, {}, {"a": 1})
    got = saver.get_tuple(config).checkpoint["channel_values"]
print(json.dumps({"file": redis_ckpt.__file__, "got": got, "shas": {n: scripts.script(n).sha for n in scripts.NAMES}}))
"""


def run(*command: object, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_", "COVERAGE", "PYTEST"))}
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", directory, ROOT, cwd=directory)
    return directory


def test_wheel_and_sdist_carry_scripts_licence_and_types(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"redis_ckpt/lua/{name}.lua" for name in _scripts.NAMES} <= names
    assert "redis_ckpt/lua/lib/sliced.lua" in names
    assert "redis_ckpt/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert all(name.startswith("redis_ckpt") for name in names), sorted(names)
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"lua/{name}.lua" for name in _scripts.NAMES} | {"pyproject.toml", "README.md", "LICENSE"} <= inside


@pytest.mark.timeout(300)
def test_the_wheel_works_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{wheel}[embedded]", cwd=tmp_path)
    import json

    answer = json.loads(run(python, "-c", USE, cwd=tmp_path).splitlines()[-1])
    assert answer["file"].startswith(str(tmp_path))
    assert answer["got"] == {"a": 1}
    assert answer["shas"] == {name: _scripts.script(name).sha for name in _scripts.NAMES}
