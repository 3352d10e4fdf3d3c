"""Encrypted state: no plaintext of values, writes or metadata reaches the server, and none is read in strict mode."""

from __future__ import annotations

import operator
import pickle
from typing import Annotated, Any

import pytest
import redis
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from redis_ckpt import CheckpointerError, FastSerializer, PlaintextRecordError
from redis_ckpt.encryption import StrictEncryptedSerializer
from tests.integration.graphs import Play, thread
from tests.savers import IDS, Facade, MakeSaver, cfg, put, values, writes
from tests.servers import on_real_servers

KEY, OTHER_KEY = b"0123456789abcdef", b"fedcba9876543210"
SECRET = "the-secret"


class Case(TypedDict):
    log: Annotated[list[Any], operator.add]
    notes: dict[str, Any]


def encrypted(key: bytes = KEY, **options: Any) -> StrictEncryptedSerializer:
    return StrictEncryptedSerializer.from_pycryptodome_aes(key=key, **options)


def everything(raw: Any) -> bytes:
    """All that a server holds: names of keys, fields, members and values, in one text."""
    parts: list[bytes] = []
    for key in raw.scan_iter(match="*"):
        parts.append(key)
        kind = raw.type(key)
        if kind == b"hash":
            parts += [part for pair in raw.hgetall(key).items() for part in pair]
        elif kind == b"zset":
            parts += raw.zrange(key, 0, -1)
        else:
            parts += raw.smembers(key)
    return b"\n".join(parts)


def play(saver: Facade) -> None:
    """A run with secrets wherever a run can have any."""

    def ask(state: Case) -> Any:
        return {"log": [interrupt(f"{SECRET} question")], "notes": {f"{SECRET} key": SECRET}}

    def fail(state: Case) -> Any:
        raise ValueError(f"{SECRET} error")

    builder = StateGraph(Case)
    builder.add_node("ask", ask)
    builder.add_node("fail", fail)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "fail")
    run = Play(saver)
    app = run.app(builder)
    config: Any = thread("open-thread", user=f"{SECRET} user") | {"metadata": {"note": f"{SECRET} note"}}
    run.invoke(app, {"log": [f"{SECRET} input"]}, config)
    run.update(app, config, {"log": [f"{SECRET} correction"]}, as_node="__start__")
    run.invoke(app, None, config)
    run.fails(app, Command(resume=f"{SECRET} answer"), config)


def test_no_plaintext_is_stored_and_what_stays_in_clear_is_known(make_saver: MakeSaver, raw: redis.Redis) -> None:
    open_saver = make_saver(prefix="plain")
    play(open_saver)
    assert SECRET.encode() in everything(raw)  # so it would be seen
    raw.flushall()
    saver = make_saver(serde=encrypted())
    play(saver)
    stored = everything(raw)
    assert SECRET.encode() not in stored
    found = saver.get_tuple(cfg("open-thread"))
    assert found is not None
    assert found.metadata["user"] == f"{SECRET} user"  # type: ignore[typeddict-item]
    assert any(f"{SECRET} error" in repr(value) for _, _, value in found.pending_writes or ())
    for in_clear in (b"open-thread", found.checkpoint["id"].encode(), b"log", b"notes", b"branch:to:fail"):
        assert in_clear in stored


@on_real_servers
def test_no_plaintext_is_sent(make_saver: MakeSaver, proxy: Any) -> None:
    seen: list[bytes] = []
    proxy.listen = seen.append
    saver = make_saver(serde=encrypted(), redis_url=proxy.url)
    play(saver)
    saver.prune(["open-thread"])
    saver.copy_thread("open-thread", "other-thread")
    list(saver.list(None))
    told = b"".join(seen)
    assert b"EVALSHA" in told
    assert SECRET.encode() not in told


def test_values_come_back_and_lists_that_grow_too(make_saver: MakeSaver) -> None:
    one, two = make_saver(serde=encrypted()), make_saver(serde=encrypted())
    log: list[str] = []
    for i in range(9):
        log.append("x" * 500)
        saver = (one, two)[i % 2]
        put(saver, i, parent=i - 1 if i else None, log=list(log), raw=b"\x00\xff", none=None)
        saver.put_writes(cfg("t", "", IDS[i]), [("x", {"deep": log})], "task")
        found = (two, one)[i % 2].get_tuple(cfg())
        assert values(found) == {"log": log, "raw": b"\x00\xff", "none": None}
        assert writes(found) == [("task", "x", {"deep": log})]
    assert [len(values(t)["log"]) for t in one.list(cfg())] == list(range(9, 0, -1))


@pytest.mark.parametrize("part", ["value", "write", "metadata", "checkpoint"])
def test_a_record_in_clear_is_refused(make_saver: MakeSaver, raw: redis.Redis, part: str) -> None:
    """Somebody who can write to the server puts a record of a saver without encryption in the place of ours."""
    strict, clear = make_saver(serde=encrypted()), make_saver(prefix="clear")
    for saver in (strict, clear):
        put(saver, 1, a="true" if saver is strict else "forged", meta={"note": "n"})
        saver.put_writes(cfg("t", "", IDS[1]), [("x", "true" if saver is strict else "forged")], "task")
    kind = {"value": "blobs", "write": "writes", "metadata": "checkpoints", "checkpoint": "checkpoints"}[part]
    ours, forged = f"ckpt:{{t}}:{kind}", raw.hgetall(f"clear:{{t}}:{kind}")
    for field in raw.hkeys(ours):
        if field in forged and field != b"epoch":
            raw.hset(ours, field, forged[field])
    with pytest.raises(CheckpointerError) as caught:
        make_saver(serde=encrypted()).get_tuple(cfg())
    chain = [caught.value, caught.value.__cause__]
    assert any(isinstance(error, PlaintextRecordError) for error in chain)
    lenient = make_saver(serde=EncryptedSerializer.from_pycryptodome_aes(serde=FastSerializer(), key=KEY))
    assert lenient.get_tuple(cfg()) is not None


def test_a_thread_in_clear_is_refused_as_a_whole(make_saver: MakeSaver) -> None:
    put(make_saver(), 1, a=1)
    with pytest.raises(CheckpointerError):
        make_saver(serde=encrypted()).get_tuple(cfg())


@pytest.mark.parametrize("rewrite", [False, True])
def test_a_key_is_changed_for_another(make_saver: MakeSaver, rewrite: bool) -> None:
    put(make_saver(serde=encrypted()), 1, a="old")
    rotated = make_saver(serde=encrypted(OTHER_KEY, old_keys=[KEY]))
    assert values(rotated.get_tuple(cfg())) == {"a": "old"}
    put(rotated, 2, parent=1, a="new")
    assert [values(t) for t in rotated.list(cfg())] == [{"a": "new"}, {"a": "old"}]
    only_new = make_saver(serde=encrypted(OTHER_KEY))
    assert values(only_new.get_tuple(cfg())) == {"a": "new"}
    with pytest.raises(Exception, match=r"MAC check failed|damaged"):
        only_new.get_tuple(cfg("t", "", IDS[1]))


def test_a_wrong_key_is_an_error_and_destroys_nothing(make_saver: MakeSaver, raw: redis.Redis) -> None:
    right = make_saver(serde=encrypted())
    put(right, 1, a=1)
    before = everything(raw)
    wrong = make_saver(serde=encrypted(OTHER_KEY))
    for read in (lambda: wrong.get_tuple(cfg()), lambda: wrong.list(cfg())):
        with pytest.raises(Exception, match=r"MAC check failed|damaged"):
            read()
    assert everything(raw) == before
    assert values(right.get_tuple(cfg())) == {"a": 1}


def test_without_a_key_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANGGRAPH_AES_KEY", raising=False)
    with pytest.raises(ValueError, match="LANGGRAPH_AES_KEY"):
        StrictEncryptedSerializer.from_pycryptodome_aes()
    monkeypatch.setenv("LANGGRAPH_AES_KEY", KEY.decode())
    serde = StrictEncryptedSerializer.from_pycryptodome_aes()
    assert serde.loads_typed(encrypted().dumps_typed("x")) == "x"


def test_an_allowlist_keeps_it_strict(make_saver: MakeSaver) -> None:
    """LangGraph asks a saver for a clone with the classes of a graph, and makes the serialiser anew for it."""
    serde = encrypted(serde=FastSerializer(allowed_msgpack_modules=[("builtins", "complex")]))
    saver = make_saver(serde=serde)
    clone = saver.with_allowlist([("decimal", "Decimal")])
    assert clone.raw_saver is not saver.raw_saver
    assert type(clone.raw_saver.serde) is StrictEncryptedSerializer
    put(make_saver(), 1, a=1)
    with pytest.raises(CheckpointerError):
        clone.get_tuple(cfg())


def test_its_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(PlaintextRecordError("msgpack")))
    assert (error.kind, "'msgpack'" in str(error)) == ("msgpack", True)
