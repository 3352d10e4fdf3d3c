"""Batches on scripted connections: what is read, what is sent again, and when a connection is dropped."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import hiredis
import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, ReadOnlyError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from redis_ckpt._carriers import KNOWN_PARSER, NOT_ENOUGH_DATA, ClientCarrier, PoolCarrier, Replies
from redis_ckpt._coalesce import Entry
from redis_ckpt._flow import Call, Plain

LOAD = Plain(("SCRIPT LOAD", "return 1"))


def entry(name: bytes, *before: Plain) -> Entry:
    return Entry([*before, Call("x", "0" * 40, "return 1", (name,), ())])


class Connection:
    """Answers from a script, one item for each reply; an exception that is no error reply breaks it."""

    def __init__(self, *script: Any, retries: int = 2) -> None:
        self.script = deque(script)
        self.retry = Retry(NoBackoff(), retries)
        self.retry_on_error = [BusyLoadingError, ReadOnlyError]
        self.retry.update_supported_errors(self.retry_on_error)
        self.sent: list[int] = []
        self.events: list[str] = []

    async def send_packed_command(self, packed: list[bytes], check_health: bool) -> None:
        self.sent.append(len(packed))

    async def read_response(self) -> Any:
        reply = self.script.popleft()
        if isinstance(reply, BaseException):
            raise reply
        return reply

    async def disconnect(self, nowait: bool = False) -> None:
        self.events.append("dropped")


class Pool:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.lock = asyncio.Lock()
        self.used = 0

    async def get_connection(self) -> Connection:
        self.used += 1
        return self.connection

    async def release(self, connection: Connection) -> None:
        async with self.lock:
            self.used -= 1


def carrier(*script: Any, retries: int = 2) -> tuple[PoolCarrier, Connection]:
    client = redis.asyncio.Redis(port=1)
    connection = Connection(*script, retries=retries)
    client.connection_pool = Pool(connection)  # type: ignore[assignment]
    return PoolCarrier(client, "Saver"), connection


async def test_each_entry_gets_its_own_replies() -> None:
    over, connection = carrier(b"sha", b"1", b"2", ResponseError("no"), {b"a", b"b"})
    batch = [entry(b"a", LOAD), entry(b"b", LOAD), entry(b"c"), Entry([Plain(("SMEMBERS", b"k"))])]
    await over.carry(batch)
    assert connection.sent == [5]
    first, second, third, fourth = (each.result() for each in batch)
    assert (first, second) == (["sha", b"1"], ["sha", b"2"])
    assert str(third[0]) == "no"
    assert fourth == [{b"a", b"b"}]
    assert connection.events == []


async def test_what_is_unanswered_is_sent_again_and_nothing_else() -> None:
    over, connection = carrier(b"1", RedisConnectionError("gone"), b"2", b"3")
    batch = [entry(b"a"), entry(b"b"), entry(b"c")]
    await over.carry(batch)
    assert connection.sent == [3, 2]
    assert [each.result() for each in batch] == [[b"1"], [b"2"], [b"3"]]
    assert "dropped" in connection.events


async def test_a_trip_whose_replies_came_in_part_is_sent_again_as_a_whole() -> None:
    over, connection = carrier(b"sha", RedisConnectionError("gone"), b"sha", b"1")
    batch = [entry(b"a", LOAD)]
    await over.carry(batch)
    assert connection.sent == [2, 2]
    assert batch[0].result() == ["sha", b"1"]


async def test_what_fails_as_often_as_the_policy_allows_is_raised() -> None:
    over, connection = carrier(b"1", *[RedisConnectionError("gone")] * 3)
    batch = [entry(b"a"), entry(b"b")]
    with pytest.raises(RedisConnectionError, match="gone"):
        await over.carry(batch)
    assert connection.sent == [2, 1, 1]
    assert [each.answered for each in batch] == [True, False]
    assert over._pool.used == 0


async def test_an_answer_that_is_worth_another_try_is_tried_again_by_itself() -> None:
    over, connection = carrier(b"1", ReadOnlyError("no"), b"3", b"2")
    batch = [entry(b"a"), entry(b"b"), entry(b"c")]
    await over.carry(batch)
    assert connection.sent == [3, 1]
    assert [each.result() for each in batch] == [[b"1"], [b"2"], [b"3"]]


async def test_the_servers_last_word_is_the_answer() -> None:
    over, connection = carrier(*[ReadOnlyError("no")] * 3)
    batch = [entry(b"a")]
    await over.carry(batch)
    assert connection.sent == [1, 1, 1]
    assert isinstance(batch[0].result()[0], ReadOnlyError)


async def test_after_close_nothing_is_tried_again() -> None:
    over, connection = carrier(RedisConnectionError("gone"), b"1")
    over.close()
    with pytest.raises(RedisConnectionError, match="closed while"):
        await over.carry([entry(b"a")])
    assert connection.sent == []


async def test_what_ends_in_the_middle_drops_the_connection() -> None:
    for end in (asyncio.CancelledError(), ValueError("a bug")):
        over, connection = carrier(b"1", end)
        with pytest.raises(type(end)):
            await over.carry([entry(b"a"), entry(b"b")])
        assert connection.events == ["dropped"]
        assert over._pool.used == 0


async def test_who_is_cancelled_while_it_hands_back_its_connection_still_hands_it_back() -> None:
    over, _ = carrier(b"1")
    await over._pool.lock.acquire()
    task = asyncio.get_running_loop().create_task(over.carry([entry(b"a")]))
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert over._pool.used == 1
    over._pool.lock.release()
    await asyncio.gather(*over._releases)
    assert over._pool.used == 0


class Parsed(redis.asyncio.Connection):
    """A connection whose parser has bytes to parse, and which must be asked for more when they are used up."""

    _parser: Any

    def feed(self, *chunks: bytes) -> None:
        self._parser._reader = hiredis.Reader(notEnoughData=NOT_ENOUGH_DATA, replyError=self._parser.parse_error)
        self.chunks = deque(chunks)
        self.pushed: list[Any] = []

        async def more(**_: Any) -> Any:
            self._parser._reader.feed(self.chunks.popleft())
            return self._parser._reader.gets()

        async def push(response: Any) -> None:
            self.pushed.append(response)

        self._parser.read_response = more
        self._parser.set_pubsub_push_handler(push)


async def test_replies_are_parsed_in_bulk_and_more_is_waited_for() -> None:
    connection = Parsed(port=1, protocol=2)
    assert type(connection._parser) is KNOWN_PARSER
    connection.feed(b"$1\r\na\r\n:7\r\n-ERR no\r\n*2\r\n$1\r\nb\r\n", b"$-1\r\n")
    replies = Replies(connection)
    found = [await replies.next() for _ in range(3)]
    assert found[:2] == [b"a", 7]
    assert str(found[2]) == "no"
    assert len(connection.chunks) == 1  # three replies, one read
    assert await replies.next() == [b"b", None]


async def test_a_push_between_replies_goes_where_redis_py_sends_it() -> None:
    connection = Parsed(port=1, protocol=3)
    connection.feed(b"$1\r\na\r\n>2\r\n$7\r\nmessage\r\n:1\r\n$1\r\nb\r\n")
    replies = Replies(connection)
    assert [await replies.next() for _ in range(2)] == [b"a", b"b"]
    assert connection.pushed == [[b"message", 1]]


async def test_an_error_that_speaks_of_the_connection_is_raised() -> None:
    connection = Parsed(port=1, protocol=2)
    connection.feed(b"$1\r\na\r\n-LOADING wait\r\n")
    replies = Replies(connection)
    await replies.next()
    with pytest.raises(BusyLoadingError):
        await replies.next()


async def test_a_parser_that_is_not_known_is_asked_reply_by_reply() -> None:
    connection = Parsed(port=1, protocol=2)
    connection.feed()
    connection._parser._reader = hiredis.Reader()  # says False where the known one has a mark of its own
    assert Replies(connection)._parser is None
    assert Replies(Connection())._parser is None
    assert await Replies(Connection(b"1")).next() == b"1"


class Pipe:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.commands: list[Any] = []

    def execute_command(self, *words: Any) -> None:
        self.commands.append(words)

    async def execute(self, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        self.client.sent.append(self.commands)
        return [words[-1] for words in self.commands]


class Client:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def pipeline(self, transaction: bool) -> Pipe:
        assert not transaction
        return Pipe(self)

    async def execute_command(self, *words: Any) -> Any:
        self.sent.append(words)
        raise ResponseError("no")


async def test_any_other_client_is_asked_through_its_pipeline() -> None:
    client = Client()
    over = ClientCarrier(client, (ResponseError,))
    batch = [entry(b"a", LOAD), entry(b"b", LOAD)]
    await over.carry(batch)
    assert [len(commands) for commands in client.sent] == [3]
    assert [each.result() for each in batch] == [["return 1", b"a"], ["return 1", b"b"]]
    lone = entry(b"c")
    await over.carry([lone])
    assert isinstance(lone.result()[0], ResponseError)
    assert client.sent[1][0] == "EVALSHA"
    over.close()
