"""Any text is an id, and no two ids meet: as thread, namespace, checkpoint, channel, task or version."""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID

import pytest
import redis
from langchain_core.runnables import RunnableConfig

from tests.savers import IDS, Facade, MakeSaver, cfg, put, values, writes

SURROGATE = "\ud800"
ODD = [
    *("a", "b", "a:b", "b:c", "a:b:c", "a{b}", "{a}", "{{a}}", "}a{", "{", "}"),
    *("%", "%3A", "%3a", "%25", "=a", "a=", "a.", ".", "..", "/", "~"),
    *("user*", "user1", "user[1]", "user?", "?", "*", "**", "[a]", "\\", "\\*", "^", "$", "'", '"', "--"),
    *("0", "00", "-1", "1.0", "None", "checkpoints", "run"),
    *("é", "éé", "e\u0301", "ÿ", "🙂", "\ue000", "\uffff", "\ufeff", "\u0130", "\u0131", SURROGATE),
    *(" ", "a b", "a  b", " a", "a ", "\n", "\r\n", "\x00", "a\x00", "\x7f"),
    *("\x1d", "\x1e", "\x1f", "a\x1fb", "\x1ea", "x" * 10_240),
]
assert len(set(ODD)) == len(ODD)

SHORT = ["a", "b", "a:b", "b:c", "{", "}", "%", "%3A", "\x1f", "\x1e", "é", "\ud800", "a*"]


def test_odd_thread_ids_never_meet(saver: Facade, raw: redis.Redis) -> None:
    for n, name in enumerate(ODD):
        put(saver, 1, t=name, a=n)
        saver.put_writes(cfg(name, "", IDS[1]), [("x", n)], "k")
    for n, name in enumerate(ODD):
        found = saver.get_tuple(cfg(name))
        assert found is not None
        assert values(found) == {"a": n}
        assert writes(found) == [("k", "x", n)]
        assert found.config == cfg(name, "", IDS[1])
        assert len(saver.list(cfg(name))) == 1
    assert {info.thread_id for info in saver.threads()} == set(ODD)
    assert {item.config["configurable"]["thread_id"] for item in saver.list(None)} == set(ODD)
    for name in ODD[::2]:
        saver.delete_thread(name)
    for n, name in enumerate(ODD):
        found = saver.get_tuple(cfg(name))
        assert (found is None) == (n % 2 == 0)
    for name in ODD[1::2]:
        saver.delete_thread(name)
    assert list(raw.scan_iter()) == []


def test_odd_parts_of_a_checkpoint_never_meet(saver: Facade) -> None:
    for n, name in enumerate(ODD):
        put(saver, name, ns=name, a=n, vers={"a": n + 1})
        saver.put_writes(cfg("t", name, name), [("x", n)], name, task_path=name)
        put(saver, name, t="ids", a=n, vers={"a": n + 1}, parent=ODD[n - 1])
    for n, name in enumerate(ODD):
        found = saver.get_tuple(cfg("t", name))
        assert found is not None
        assert found.config == cfg("t", name, name)
        assert values(found) == {"a": n}
        assert writes(found) == [(name, "x", n)]
        by_id = saver.get_tuple(cfg("ids", "", name))
        assert values(by_id) == {"a": n}
        assert by_id is not None
        assert by_id.parent_config == cfg("ids", "", ODD[n - 1])
    assert len(saver.list({"configurable": {"thread_id": "t"}})) == len(ODD)
    assert len(saver.list(cfg("ids"))) == len(ODD)


def test_odd_channels_and_versions_never_meet(saver: Facade) -> None:
    names = [name for name in ODD if name != SURROGATE]
    state = {name: n for n, name in enumerate(names)}
    put(saver, 1, vers={name: name for name in names}, **state)
    saver.put_writes(cfg("t", "", IDS[1]), [(name, n) for n, name in enumerate(ODD)], "k")
    found = saver.get_tuple(cfg())
    assert found is not None
    assert values(found) == state
    assert found.checkpoint["channel_versions"] == {name: name for name in names}
    assert writes(found) == [("k", name, n) for n, name in enumerate(ODD)]


def test_a_channel_that_the_serialiser_cannot_name_is_refused(saver: Facade, raw: redis.Redis) -> None:
    """JsonPlusSerializer refuses lone surrogates in the keys of a dict, so InMemorySaver refuses this too."""
    with pytest.raises(TypeError, match="surrogates"):
        put(saver, 1, **{SURROGATE: 1})
    assert list(raw.scan_iter()) == []


def test_odd_task_ids_never_meet(saver: Facade) -> None:
    put(saver, 1, a=1)
    for n, name in enumerate([*ODD, ""]):
        saver.put_writes(cfg("t", "", IDS[1]), [("x", n)], name)
        saver.put_writes(cfg("t", "", IDS[1]), [("x", "second")], name)
    assert sorted((task, value) for task, _, value in writes(saver.get_tuple(cfg()))) == sorted(
        (name, n) for n, name in enumerate([*ODD, ""])
    )


def test_the_end_of_one_part_is_never_the_begin_of_the_next(saver: Facade) -> None:
    pairs = list(itertools.product(SHORT, ["", *SHORT]))
    for n, (thread, ns) in enumerate(pairs):
        put(saver, 1, t=thread, ns=ns, a=n)
    for n, (thread, ns) in enumerate(pairs):
        assert values(saver.get_tuple(cfg(thread, ns))) == {"a": n}
        assert len(saver.list(cfg(thread, ns))) == 1
    pairs = [(channel, version) for channel, version in pairs if channel != SURROGATE]
    for n, (channel, version) in enumerate(pairs):
        put(saver, f"{n:04}", t="versions", vers={channel: version}, **{channel: n})
    for n, (channel, _) in enumerate(pairs):
        assert values(saver.get_tuple(cfg("versions", "", f"{n:04}"))) == {channel: n}


def test_numbers_and_uuids_are_the_threads_of_their_text(saver: Facade) -> None:
    for name in (7, UUID(int=5)):
        put(saver, 1, t=name, a=str(name))
        for form in (name, str(name)):
            assert values(saver.get_tuple(cfg(form))) == {"a": str(name)}
        saver.put_writes(cfg(name, "", IDS[1]), [("x", 1)], "k")
        assert writes(saver.get_tuple(cfg(str(name)))) == [("k", "x", 1)]
    saver.delete_thread(7)  # type: ignore[arg-type]
    assert saver.get_tuple(cfg("7")) is None


def _calls(s: Facade, thread_id: Any) -> dict[str, Any]:
    """Every operation that names a thread."""
    config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    with_id: RunnableConfig = {"configurable": {**config["configurable"], "checkpoint_id": IDS[1]}}
    return {
        "put": lambda: put(s, 1, t=thread_id, a=1),
        "put_writes": lambda: s.put_writes(with_id, [("x", 1)], "k"),
        "get_tuple": lambda: s.get_tuple(config),
        "get": lambda: s.get(config),
        "list": lambda: s.list(config),
        "history": lambda: s.get_delta_channel_history(config=config, channels=["a"]),
        "delete_thread": lambda: s.delete_thread(thread_id),
        "copy from": lambda: s.copy_thread(thread_id, "other"),
        "copy to": lambda: s.copy_thread("other", thread_id),
        "prune": lambda: s.prune([thread_id]),
        "prune second": lambda: s.prune(["other", thread_id]),
        "prune delete": lambda: s.prune([thread_id], strategy="delete"),
    }


@pytest.mark.parametrize("thread_id", [None, ""])
def test_a_missing_thread_id_is_refused_before_anything_is_sent(
    saver: Facade, raw: redis.Redis, thread_id: str | None
) -> None:
    put(saver, 1, t="other", a=1)
    before = sorted(raw.scan_iter())
    for call in _calls(saver, thread_id).values():
        with pytest.raises(ValueError, match="thread_id"):
            call()
    configs: list[Any] = [{"configurable": {}}, {"configurable": {"checkpoint_ns": ""}}]
    for config in configs:
        with pytest.raises(ValueError, match="thread_id"):
            saver.get_tuple(config)
    assert sorted(raw.scan_iter()) == before


def test_the_names_in_redis_are_readable_and_quoted(saver: Facade, raw: redis.Redis) -> None:
    put(saver, "id:1", t="a:b {c}%\x1f", ns="sub:1", **{"chan nel": 1}, vers={"chan nel": "1:2"})
    saver.put_writes(cfg("a:b {c}%\x1f", "sub:1", "id:1"), [("x", 1)], "task|é")
    head = b"ckpt:{a%3Ab%20%7Bc%7D%25%1F}:"
    parts = [b"blobs", b"checkpoints", b"order", b"pending", b"writes"]
    assert sorted(raw.scan_iter()) == [head + part for part in parts]
    assert set(raw.hkeys(head + b"checkpoints")) - {b"epoch"} == {b"sub%3A1\x1fid%3A1"}
    assert raw.hkeys(head + b"blobs") == [b"sub%3A1\x1fchan%20nel\x1f=1%3A2"]
    write = "sub%3A1\x1fid%3A1\x1ftask|é\x1f0".encode()
    assert raw.hkeys(head + b"writes") == [write]
    assert raw.zrange(head + b"pending", 0, -1) == [write]
    assert raw.zrange(head + b"order", 0, -1) == [b"\x1eid%3A1\x1fsub%3A1", b"sub%3A1\x1fid%3A1"]


@pytest.mark.parametrize("prefix", ["", "a b", "a{b", "a}b", "\n"])
def test_a_prefix_that_would_break_the_layout_is_refused(make_saver: MakeSaver, prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        make_saver(prefix=prefix)
