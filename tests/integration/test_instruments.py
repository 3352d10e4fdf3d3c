"""The instruments of the tests themselves: one that did not see would make every test pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis

from tests.audit import TABLE, audit, row_of
from tests.monitor import Line, monitor, parse
from tests.proxy import Proxy
from tests.savers import IDS, Facade, cfg, put
from tests.servers import Server, on_real_servers

README = Path(__file__).parents[2] / "lua" / "README.md"


def _readme_rows() -> list[tuple[str, str, tuple[str, ...]]]:
    """The first table of the README whose head is `key | type | ...`; rows without a key go on with the one before."""
    rows: list[tuple[str, str, tuple[str, ...]]] = []
    lines = iter(README.read_text("utf-8").splitlines())
    while not re.match(r"\| *key *\| *type *\|", next(lines)):
        pass
    next(lines)
    for line in lines:
        if not line.startswith("|"):
            break
        key, kind, entry = (cell.strip().strip("`") for cell in line.split("|")[1:4])
        if key:
            rows.append((key, kind, ()))
        last = rows[-1]
        rows[-1] = (last[0], last[1], (*last[2], entry))
    return rows


def test_the_audit_holds_keys_against_the_table_of_the_readme() -> None:
    assert _readme_rows() == [(row.key, row.kind, row.entries) for row in TABLE]


@pytest.mark.unaudited("damage is made on purpose")
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (["SET", "ckpt:lock", "1"], "no row"),
        (["SET", "ckpt:{t}:checkpoints:1", "1"], "no row"),
        (["SET", "ckpt:{a:b}:order", "1"], "no row"),
        (["SET", "ckpt:{}:order", "1"], "no row"),
        (["SET", "ckpt:{new}:order", "1"], "is a b'string'"),
        (["HSET", "ckpt:{t}:checkpoints", "Oops", "1"], "odd entry"),
        (["HSET", "ckpt:{t}:blobs", "a\x1f1", "1f"], "odd entry"),
        (["HSET", "ckpt:{t}:writes", "\x1fid\x1ftask\x1fone", "1"], "odd entry"),
        (["HSET", "ckpt:{t}:blobs", "\x1fa:b\x1f1", "1f"], "odd entry"),
        (["HSET", "ckpt:{t}:blobs", "\x1fa\x1f1", "2f"], "record version"),
        (["HSET", "ckpt:{t}:checkpoints", "\x1fid", "1"], "checkpoints and order differ"),
        (["ZREM", "ckpt:{t}:order", f"\x1f{IDS[1]}"], "checkpoints and order differ"),
        (["ZREM", "ckpt:{t}:order", f"\x1e{IDS[2]}\x1fsub"], "index"),
        (["ZADD", "ckpt:{t}:order", "0", f"\x1e{IDS[1]}\x1fsub"], "index"),
        (["ZADD", "ckpt:{t}:order", "1", f"\x1f{IDS[1]}"], "scores"),
        (["ZADD", "ckpt:{t}:pending", "0", "\x1fid\x1fk\x1f0"], "writes and pending differ"),
        (["DEL", "ckpt:{t}:pending"], "writes and pending differ"),
        (["PERSIST", "ckpt:run:{r}"], "expire"),
    ],
)
def test_the_audit_finds(saver: Facade, server: Server, raw: redis.Redis, damage: list[str], complaint: str) -> None:
    put(saver, 1, meta={"run_id": "r"}, a=1)
    put(saver, 2, ns="sub", a=1)
    saver.put_writes(cfg("t", "", IDS[1]), [("x", 1)], "k")
    assert audit(server) == []
    raw.execute_command(*damage)
    assert any(complaint in wrong for wrong in audit(server)), audit(server)


@pytest.mark.unaudited("damage is made on purpose")
def test_the_audit_looks_into_every_database(server: Server) -> None:
    server.raw(db=9).set("stray", 1)
    assert audit(server) == ["b'stray' matches no row of the table"]
    assert row_of(b"stray") is None


@on_real_servers
def test_the_proxy_counts_trips_bytes_and_connections(server: Server) -> None:
    with Proxy(server.port) as proxy, redis.Redis.from_url(proxy.url, protocol=2) as client:
        client.ping()
        assert proxy.counts().connections == 1
        with proxy.measure() as counts:
            client.set("ckpt:run:{r}", b"x" * 300_000)
        assert counts.trips == 1
        assert counts.bytes_up > 300_000
        assert counts.bytes_down == len(b"+OK\r\n")
        with proxy.measure() as counts, client.pipeline(transaction=False) as pipe:
            for _ in range(10):
                pipe.ping()
            pipe.execute()
        assert (counts.trips, counts.connections) == (1, 0)
        with proxy.measure() as counts:
            for _ in range(3):
                client.delete("ckpt:run:{r}")
        assert counts.trips == 3
        proxy.cut()
        client.ping()
        assert proxy.counts().connections == 2


@on_real_servers
def test_monitor_sees_clients_and_scripts_apart(server: Server, raw: redis.Redis) -> None:
    raw.ping()
    odd = b'a "quoted" \\ \x00\x1f\xff\n'
    with monitor(server) as lines:
        raw.eval("redis.call('SET', KEYS[1], ARGV[1]) redis.call('DEL', KEYS[1])", 1, "k", odd)
    assert lines.names() == ["EVAL"]
    assert [line.arguments for line in lines if line.from_script] == [(b"SET", b"k", odd), (b"DEL", b"k")]
    with monitor(server) as lines:
        pass
    assert lines.sent() == []


def test_a_line_of_monitor_is_parsed() -> None:
    line = parse(b'+1339518083.107412 [3 127.0.0.1:60866] "get" "a\\"b\\\\c\\x00\\n"\r\n')
    assert line == Line(3, "127.0.0.1:60866", (b"get", b'a"b\\c\x00\n'))
    assert parse(b"+OK\r\n") is None
