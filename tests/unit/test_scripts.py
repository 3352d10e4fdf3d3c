"""The headers of the scripts against their bodies and their callers, and the shared pieces."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import fakeredis
import pytest

from redis_ckpt import _scripts
from redis_ckpt._keys import NOTHING, Range, thread_keys

LUA = Path(__file__).parents[2] / "lua"
README = (LUA / "README.md").read_text("utf-8")
THREAD = thread_keys(b"p", "t")
OTHER = thread_keys(b"p", "u")
# One call of each, with as many of each repeated argument as its type allows, to count ARGV by.
CALLS = {
    "put": _scripts.put(THREAD, b"ns\x1fid", (b"head", b"refs", b"body"), [], [], []),
    "put_writes": _scripts.put_writes(THREAD, b"task", []),
    "get_tuple": _scripts.get_tuple(THREAD, b"", b""),
    "list_page": _scripts.list_page(THREAD, 1, False, Range(b"-", b"+"), NOTHING),
    "history": _scripts.history(THREAD, b"", b"", b"", 1, []),
    "headers": _scripts.headers(THREAD, 1, Range(b"-", b"+"), NOTHING),
    "forget": _scripts.forget(THREAD, b"1", "last", []),
    "drop": _scripts.drop(THREAD, b"1", b"", 0),
    "expire": _scripts.expire(THREAD, 1),
    "strays": _scripts.strays(THREAD, b"", 1),
    "copy": _scripts.copy(THREAD, OTHER),
    "note_run": _scripts.note_run(b"run", b"t"),
    "sizes": _scripts.sizes(THREAD, 1, []),
    "thread_info": _scripts.thread_info(THREAD, b"", 1),
}

CORE = (
    "COPY EXISTS HDEL HEXISTS HGET HINCRBY HLEN HMGET HSET HSETNX HSTRLEN PERSIST PEXPIRE PEXPIREAT PTTL "
    "SADD UNLINK ZADD ZCARD ZLEXCOUNT ZRANGEBYLEX ZREM ZREVRANGEBYLEX ZSCORE"
)


def source(name: str) -> str:
    return (LUA / f"{name}.lua").read_text("utf-8")


def split(name: str) -> tuple[list[str], str]:
    lines = source(name).splitlines()
    end = next(i for i, line in enumerate(lines) if not line.startswith("-- ") and line != "--")
    return lines[:end], "\n".join(lines[end:])


@pytest.fixture(params=_scripts.NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_file_is_a_known_script_and_every_script_a_file() -> None:
    assert {p.stem for p in LUA.glob("*.lua")} == set(_scripts.NAMES) == set(CALLS)


def test_a_header_has_all_its_fields_in_order(name: str) -> None:
    head, _ = split(name)
    assert re.match(rf"-- {name}: .+\.$", head[0]), head[0]
    fields = [m[1] for line in head if (m := re.match(r"-- (KEYS|ARGV|Returns|Cost|Caller)", line))]
    assert list(dict.fromkeys(fields)) == ["KEYS", "ARGV", "Returns", "Cost", "Caller"]
    assert f"-- Caller   redis_ckpt/_scripts.py: {name}" in head


def test_the_header_names_as_many_keys_and_arguments_as_the_caller_sends(name: str) -> None:
    head = "\n".join(split(name)[0])
    call = CALLS[name]
    keys = [int(n) for n in re.findall(r"KEYS\[(\d+)", head)]
    last = max([*keys, *(int(n) for n in re.findall(r"KEYS\[\d+\.\.(\d+)\]", head))])
    assert last == len(call.keys)
    fixed = [int(n) for n in re.findall(r"^-- ARGV\[(\d+)\] ", head, re.M)]
    assert fixed == list(range(1, len(call.args) + 1))
    repeated = re.findall(r"^-- ARGV\[(\d+)\.\.\]", head, re.M)
    assert [int(n) for n in repeated] == ([len(call.args) + 1] if repeated else [])


def test_what_the_header_calls_an_argument_is_what_the_script_calls_it(name: str) -> None:
    head, body = split(name)
    names = re.findall(r"^-- ARGV\[\d+\]  (\w+)", "\n".join(head), re.M)
    binding = re.search(r"^local (.+?) = .*?(?:ARGV|KEYS)\[1\]", body.replace("=\n ", "="), re.M)
    assert binding
    bound = [n.strip() for n in binding[1].split(",")]
    if name in ("list_page",):  # bound in two lines
        bound += [n.strip() for n in re.findall(r"^local (.+?) = ARGV\[4\]", body, re.M)[0].split(",")]
    short = {"c": "count"}
    assert [short.get(n, n) for n in names] == [b for b in bound if b not in ("run",)]


def test_keys_are_bound_before_they_are_used(name: str) -> None:
    _, body = split(name)
    first = re.search(r"KEYS\[", body)
    assert "--- @include lib/keys" in body or first
    uses = [line for line in body.splitlines() if "KEYS[" in line]
    assert all(line.startswith("local ") for line in uses)


def test_only_core_commands_are_called(name: str) -> None:
    called = set(re.findall(r"redis\.call\('(\w+)'|sliced\('(\w+)'", _scripts.script(name).text))
    words = {a or b for a, b in called}
    assert words <= set(CORE.split())


def test_nothing_is_written_before_everything_is_checked(name: str) -> None:
    text = _scripts.script(name).text
    body = text[text.rindex("local " + ("run" if name == "note_run" else "")) :] if name == "note_run" else text
    writes = [m.start() for m in re.finditer(r"'(HSET|HSETNX|ZADD|UNLINK|COPY|SADD|HDEL|HINCRBY)'", body)]
    early = [m.start() for m in re.finditer(r"return (0|-1|missing|false)$", body)]
    if writes and early:
        assert max(early) < min(writes)


def test_a_script_is_of_a_size_that_one_can_read(name: str) -> None:
    assert len(source(name).splitlines()) <= 120


def test_what_is_sent_is_without_comments_and_includes(name: str) -> None:
    text = _scripts.script(name).text
    assert "--" not in text
    assert "@include" not in text
    assert len(_scripts.script(name).sha) == 40


def test_the_index_in_the_readme_names_every_script() -> None:
    table = README.split("## Scripts")[1].split("## Removing")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == set(_scripts.NAMES)


def test_every_caller_is_a_function_that_says_what_the_reply_is(name: str) -> None:
    function = getattr(_scripts, name)
    assert (inspect.getdoc(function) or "").startswith("Reply: ")


def _eval(text: str, *args: Any) -> Any:
    return fakeredis.FakeRedis().eval(text, 1, "k", *args)


@pytest.mark.parametrize("count", [0, 1, 3999, 4000, 4001, 10_000])
def test_lists_of_any_length_are_called_in_slices(count: int) -> None:
    body = (LUA / "lib" / "sliced.lua").read_text() + (
        "local pairs_, names = {}, {}\n"
        "for i = 1, tonumber(ARGV[1]) do\n"
        "  pairs_[2 * i - 1], pairs_[2 * i], names[i] = 'f' .. i, 'v' .. i, 'f' .. (i % 2 == 0 and i or -i)\n"
        "end\n"
        "sliced('HSET', KEYS[1], pairs_)\n"
        "local replies = sliced('HMGET', KEYS[1], names)\n"
        "local right = 0\n"
        "for i = 1, #names do if replies[i] == (i % 2 == 0 and 'v' .. i) then right = right + 1 end end\n"
        "return {redis.call('HLEN', KEYS[1]), right}\n"
    )
    assert _eval(body, count) == [count, count]
