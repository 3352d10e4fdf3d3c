"""What the server is asked while real graphs run, by its own account: scripts, and each loaded once."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import redis
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from tests.audit import dump
from tests.integration.graphs import DURABILITIES, Builder, Durability, Play, thread
from tests.integration.test_graphs_interrupts import Log
from tests.monitor import Line, Lines, monitor
from tests.savers import IDS, Facade, cfg, put
from tests.servers import Server, on_real_servers

if TYPE_CHECKING:
    from tests.conftest import MakeSaver

pytestmark = on_real_servers
FIVE = {b"ckpt:{t}:%b" % part for part in (b"checkpoints", b"blobs", b"writes", b"order", b"pending")}
MARK = b"end of the block"


def order() -> Builder:
    """Plan, fan out with Send, ask, finish; with a subgraph, so that there is a second namespace."""
    inner = StateGraph(Log)
    inner.add_node("approve", lambda state: {"log": [interrupt("go on?")]})
    inner.add_edge(START, "approve")
    builder = StateGraph(Log)
    builder.add_node("plan", lambda state: {"log": ["plan"]})
    builder.add_node("work", lambda n: {"log": [n]})
    builder.add_node("ask", inner.compile())
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda state: [Send("work", n) for n in range(8)], ["work"])
    builder.add_edge("work", "ask")
    builder.add_edge("ask", END)
    return builder


def asked(lines: Lines) -> list[Line]:
    """What the saver's connections sent, greetings included, up to the mark of the test."""
    return [
        line for line in itertools.takewhile(lambda line: MARK not in line.arguments, lines) if not line.from_script
    ]


def run(play: Play, durability: Durability) -> None:
    app = play.app(order())
    play.invoke(app, {"log": []}, thread(), durability=durability)
    play.state(app, thread(), subgraphs=True)
    play.invoke(app, Command(resume="yes"), thread(), durability=durability)
    assert play.state(app, thread()).values["log"][-1] == "yes"
    assert play.history(app, thread())


@pytest.fixture
def fresh(server: Server) -> redis.Redis:
    """A client that has said its greeting, on a server that knows no script."""
    client = server.raw()
    client.script_flush()
    return client


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_graph_run_sends_scripts_only(
    make_saver: MakeSaver, server: Server, fresh: redis.Redis, durability: Durability
) -> None:
    saver = make_saver(redis_url=server.url)
    with monitor(server) as lines:
        run(Play(saver), durability)
        fresh.echo(MARK)
    sent = asked(lines)
    calls = [line.arguments for line in sent if line.name == "EVALSHA"]
    assert {line.arguments[:2] for line in sent if line.name != "EVALSHA"} == {(b"SCRIPT", b"LOAD")}
    check_loads(sent)
    # Every key that a script is given is one of the thread's five.
    assert {key for call in calls for key in call[3 : 3 + int(call[2])]} == FIVE
    assert set(fresh.keys()) == FIVE


def check_loads(sent: list[Line]) -> None:
    """No script is loaded again once it is there: only callers that had asked before the first load load it too."""
    texts = [line.arguments[2] if line.name == "SCRIPT" else b"" for line in sent]
    for text in set(texts) - {b""}:
        sha = hashlib.sha1(text).hexdigest().encode()
        early = [line for line in sent[: texts.index(text)] if line.arguments[1] == sha]
        assert 1 <= texts.count(text) <= len(early)


def test_a_saver_that_was_set_up_loads_each_script_once(
    make_saver: MakeSaver, server: Server, fresh: redis.Redis
) -> None:
    saver = make_saver(redis_url=server.url)
    with monitor(server) as lines:
        saver.setup()
        run(Play(saver), "sync")
        fresh.echo(MARK)
    loaded = Counter(line.arguments for line in asked(lines) if line.name != "EVALSHA")
    assert {arguments[:2] for arguments in loaded} == {(b"SCRIPT", b"LOAD")}
    assert set(loaded.values()) == {1}


def test_scripts_touch_only_the_keys_they_are_given(make_saver: MakeSaver, server: Server, fresh: redis.Redis) -> None:
    saver = make_saver(redis_url=server.url)
    with monitor(server) as lines:
        run(Play(saver), "sync")
        fresh.echo(MARK)
    inside = [line for line in lines if line.from_script and line.name != "TIME"]
    assert inside
    assert {line.arguments[1] for line in inside} <= FIVE
    assert not {line.name for line in inside} & {"KEYS", "SCAN", "HGETALL", "HVALS", "HKEYS"}


def test_a_dry_run_and_a_look_write_nothing(make_saver: MakeSaver, server: Server, fresh: redis.Redis) -> None:
    """By the server's own account of which commands only read."""
    saver = make_saver(redis_url=server.url, ttl=1000, refresh_on_read=True)
    saver.setup()
    run(Play(saver), "sync")
    put(saver, 1, t="old", a=1)
    put(saver, 1, t="old", a=2, vers={"a": 2})
    put(saver, "no time in it", t="old", ns="call:1", a=3, meta={"parents": {"": IDS[0]}})
    saver.put_writes(cfg("old", "", IDS[0]), [("x", 1)], "late")
    saver.put_writes(cfg("stray", "", IDS[0]), [("x", 1)], "early")
    before = dump(fresh)
    with monitor(server) as lines:
        for thread_ids in (None, ["t", "old", "nobody"]):
            wide = saver.sweep(thread_ids, keep_last=1, older_than=0, dry_run=True)
            idle = saver.sweep(thread_ids, idle_for=0.001, dry_run=True)
        saver.stats()
        saver.threads()
        fresh.echo(MARK)
    assert wide.checkpoints
    assert wide.writes
    assert wide.blobs
    assert idle.threads_removed == 2
    assert dump(fresh) == before
    sent = {line.name for line in asked(lines)}
    inside = {line.name for line in lines if line.from_script}
    assert {"EVALSHA", "SCAN"} < sent
    assert inside
    for name in (sent - {"EVALSHA"}) | inside:
        assert "'readonly'" in str(fresh.execute_command("COMMAND", "INFO", name)), name


def test_after_the_run_five_keys_and_after_the_deletion_none(saver: Facade, raw: redis.Redis) -> None:
    run(Play(saver), "async")
    assert set(raw.keys()) == FIVE
    saver.delete_thread("t")
    assert raw.keys() == []


def test_a_url_with_database_and_password_says_nothing_more(
    make_saver: MakeSaver, server: Server, fresh: redis.Redis
) -> None:
    """AUTH and SELECT are what the URL asks for; no other greeting is sent."""
    assert server.url is not None
    fresh.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~ckpt:*", "+@all")
    try:
        saver = make_saver(redis_url=server.url.replace("://", "://worker:secret@") + "/3")
        with monitor(server) as lines:
            run(Play(saver), "sync")
            fresh.echo(MARK)
        names: set[Any] = {line.name for line in asked(lines)}
        assert {"EVALSHA", "SCRIPT", "SELECT"} <= names
        assert names <= {"EVALSHA", "SCRIPT", "SELECT", "AUTH"}
        saver.delete_thread("t")
        saver.close()
    finally:
        fresh.execute_command("ACL", "DELUSER", "worker")
