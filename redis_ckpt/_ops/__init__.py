"""The operations, each a flow (see `_flow`). They do no I/O and build no names of keys themselves.

Rule 1: check the arguments and serialise before the first `yield`; then nothing half-done can be seen.
Rule 2: one round trip where the contract allows it; loops only over pages.
Rule 3: a reply is decoded here and nowhere else.
"""

from __future__ import annotations

from typing import NamedTuple

from langgraph.checkpoint.serde.base import SerializerProtocol

from redis_ckpt._expiry import Expiry


class Store(NamedTuple):
    """What the operations of a saver share: where its keys are, how it serialises, how long it keeps."""

    prefix: bytes
    serde: SerializerProtocol
    expiry: Expiry
