"""What cannot be read is damage, said with the thread that it belongs to: nothing foreign leaves an operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from redis_ckpt._config import Target
from redis_ckpt._flow import Flow, Reply, Trip
from redis_ckpt.errors import CheckpointerError, DamagedCheckpointError

T = TypeVar("T")

WRONG_TYPE = "a key of the thread is of another type"
IN_A_SCRIPT = (
    "WRONGTYPE",
    "attempt to ",
    "rguments must be strings or integers",
)  # what servers answer where a script met something else than is stored


def unreadable(target: Target | None, what: str, error: Exception, channels: Sequence[str] = ()) -> CheckpointerError:
    """What is raised for an error of decoding; an error of ours says enough as it is."""
    if isinstance(error, CheckpointerError):
        return error
    told = f"{what} cannot be read ({type(error).__name__}: {str(error)[:200]})"
    if target is None:
        return CheckpointerError(f"{told}: what stands between this process and the server, or the server, is broken")
    return DamagedCheckpointError(*target, told, channels, is_unreadable=True)


def of_thread(thread_id: str, flow: Flow[T]) -> Flow[T]:
    """`told`, for a flow over all of a thread."""
    return told(Target(thread_id, "", ""), flow)


def told(target: Target | None, flow: Flow[T], reads: bool = True) -> Flow[T]:
    """The same flow; what it does not understand of the answers is raised as damage of this thread, if it is of one.

    What it says before it asks for anything is about the arguments of the caller, and passes. Without `reads` it
    may speak of these later, too: then only errors of scripts are damage.
    """
    try:
        trip = next(flow)
        while True:
            try:
                replies = yield trip
            except Exception as error:  # an error reply
                trip = flow.throw(_of_a_script(target, error))
            else:
                trip = _sent(target, flow, replies) if reads else flow.send(replies)
    except StopIteration as end:
        result: T = end.value
        return result


def _sent(target: Target | None, flow: Flow[T], replies: list[Reply]) -> Trip:
    try:
        return flow.send(replies)
    except (StopIteration, CheckpointerError):
        raise
    except Exception as error:
        raise unreadable(target, "an answer", error) from error


def _of_a_script(target: Target | None, error: Exception) -> Exception:
    is_of_a_script = type(error).__name__ == "ResponseError" and any(mark in str(error) for mark in IN_A_SCRIPT)
    if target is None or not is_of_a_script:
        return error
    damage = DamagedCheckpointError(*target, f"{WRONG_TYPE}, or holds something else ({str(error)[:200]})")
    damage.__cause__ = error
    return damage
