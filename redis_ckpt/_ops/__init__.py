"""The operations, each a flow (see `_flow`). They do no I/O and build no names of keys themselves.

Rule 1: check the arguments and serialise before the first `yield`; then nothing half-done can be seen.
Rule 2: one round trip where the contract allows it; loops only over pages.
Rule 3: a reply is decoded here and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from langgraph.checkpoint.serde.base import SerializerProtocol

from redis_ckpt._config import Target
from redis_ckpt._expiry import Expiry
from redis_ckpt._guards import Guards
from redis_ckpt._known import Cache
from redis_ckpt._recent import Recent

if TYPE_CHECKING:
    from redis_ckpt._copies import Copies


class Store(NamedTuple):
    """What the operations of a saver share: where its keys are, how it serialises, how long it keeps, what it knows."""

    prefix: bytes
    serde: SerializerProtocol
    expiry: Expiry
    cache: Cache
    guards: Guards
    handed_out: Recent[Target, bool]  # what this process was given, with delta channels that it may yet rebuild
    copies: Copies | None = None  # messages of threads that come back
