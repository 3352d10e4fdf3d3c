"""Calls with a wait for acknowledgements behind them, on a blocking cluster client: both over one connection.

WAIT speaks of what its own connection has written, so it must not go to a node by itself, as the client would send it.
Nor does the client know how to follow a redirection with two commands; so whatever a node does not do itself the client
is asked to do by its own way, which learns the slots anew and is patient, and then both are sent once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis_ckpt._flow import Call, Command, Plain, Reply, Trip, words

MOST_TRIES = 5
REDIRECTIONS = ("MovedError", "AskError", "TryAgainError", "ClusterDownError")  # of redis-py and of valkey-py


def ask_cluster(client: Any, trip: Trip, one: Callable[[Command], Reply]) -> list[Reply]:
    """The replies to a trip that ends with a call and a wait.

    Args:
        client: The cluster client.
        trip: The trip; what stands before its last call may go anywhere.
        one: The client's own way to send one command; an error reply is what it returns.

    Raises:
        RedisError: The connections failed, and the client could not mend it either.
    """
    *others, call, wait = trip
    assert isinstance(call, Call), "a wait stands behind a call"
    replies = [one(command) for command in others]
    for _ in range(MOST_TRIES):
        pair = _ask_node(client, call, wait)
        if pair is not None and type(pair[0]).__name__ not in REDIRECTIONS:
            return [*replies, *pair]
        reply = one(call)
        if isinstance(reply, Exception):
            return [*replies, reply, reply]
    return [*replies, reply, RuntimeError("its node could not be asked to wait")]


def _ask_node(client: Any, call: Call, wait: Command) -> list[Reply] | None:
    """The replies of the node that has the key, or is about to get it; None if its connection failed."""
    try:
        pair = _over_one_connection(client, client.get_node_from_key(call.keys[0]), [call, wait])
        if type(pair[0]).__name__ == "AskError":
            target = client.get_node(pair[0].host, pair[0].port)
            pair = _over_one_connection(client, target, [Plain(("ASKING",)), call, wait])[1:]
        return pair
    except client.ERRORS_ALLOW_RETRY:
        return None


def _over_one_connection(client: Any, node: Any, trip: Trip) -> list[Reply]:
    connect = getattr(client, "get_redis_connection", None) or client.get_valkey_connection
    pipe = connect(node).pipeline(transaction=False)
    for command in trip:
        pipe.execute_command(*words(command))
    replies: list[Reply] = pipe.execute(raise_on_error=False)
    return replies
