"""Allowlists: who can write to the server cannot make a strict reader build what is not allowed."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from redis_ckpt import FastSerializer
from redis_ckpt.encryption import StrictEncryptedSerializer
from tests.savers import IDS, Facade, MakeSaver, cfg, put, values, writes

BUILT: list[str] = []
CHAT = [HumanMessage(f"message number {n}, long enough for a delta " * 3, id=str(n)) for n in range(12)]


@dataclasses.dataclass
class Trap:
    """What an attacker wants to see built."""

    name: str

    def __post_init__(self) -> None:
        BUILT.append(self.name)


def version(i: int) -> str:
    return f"{i:032}.0.{i}123456789012345"


def lay_traps(saver: Facade) -> None:
    """Traps in a value, inside of lists that are stored as deltas, in a write and in the metadata."""
    for i in range(3):
        log = [*CHAT[: 8 + i], Trap("in a list")]
        versions = {"value": version(i), "log": version(i)}
        meta = {"trap": Trap("in the metadata")}
        put(saver, i, parent=i - 1 if i else None, value=Trap("value"), log=log, vers=versions, meta=meta)
        saver.put_writes(cfg("t", "", IDS[i]), [("x", Trap("in a write")), ("m", CHAT[0])], "task")
    BUILT.clear()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_without_a_list_it_is_built(make_saver: MakeSaver) -> None:
    """So that what the next tests do not see could be seen."""
    lay_traps(make_saver())
    assert values(make_saver().get_tuple(cfg()))["value"] == Trap("value")
    assert set(BUILT) == {"value", "in a list", "in a write", "in the metadata"}


@pytest.mark.parametrize("encrypts", [False, True], ids=["clear", "encrypted"])
def test_with_a_list_nothing_else_is_built(make_saver: MakeSaver, encrypts: bool) -> None:
    key = b"0123456789abcdef"

    def serde(**options: Any) -> Any:
        inner = FastSerializer(**options)
        return StrictEncryptedSerializer.from_pycryptodome_aes(inner, key=key) if encrypts else inner

    lay_traps(make_saver(serde=serde()))
    strict = make_saver(serde=serde(allowed_msgpack_modules=[]))
    for _ in range(2):  # once more with what is known and copied
        found = strict.get_tuple(cfg())
        assert values(found)["value"] == {"name": "value"}
        assert values(found)["log"][:8] == CHAT[:8]  # LangChain's own classes are let through
        assert values(found)["log"][-1] == {"name": "in a list"}
        assert [value for _, _, value in writes(found)] == [{"name": "in a write"}, CHAT[0]]
    assert len(strict.list(cfg())) == 3
    assert BUILT == []


def test_what_is_on_the_list_is_built(make_saver: MakeSaver) -> None:
    lay_traps(make_saver())
    allowed = make_saver(serde=FastSerializer(allowed_msgpack_modules=[(__name__, "Trap")]))
    assert values(allowed.get_tuple(cfg()))["value"] == Trap("value")


def test_the_strict_mode_of_langgraph_holds_for_the_default_serialiser() -> None:
    code = """
        import dataclasses, sys, types
        import fakeredis
        from redis_ckpt import RedisSaver
        from tests.integration import test_allowlists
        from tests.integration.test_allowlists import BUILT, lay_traps
        from tests.savers import cfg
        saver = RedisSaver(redis_client=fakeredis.FakeRedis())
        lay_traps(saver)
        fresh = RedisSaver(redis_client=saver._wire._client)
        print(fresh.get_tuple(cfg()).checkpoint["channel_values"]["value"], BUILT)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout == "{'name': 'value'} []\n", done.stderr
