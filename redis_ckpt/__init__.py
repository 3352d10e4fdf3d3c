"""The LangGraph checkpointer for plain Redis and Valkey."""

from redis_ckpt._ack import Ack
from redis_ckpt._coalesce import Pipelining
from redis_ckpt._expiry import TTL
from redis_ckpt._ops.stats import Held, NamespaceStats, ThreadStats, TotalStats
from redis_ckpt._ops.sweep import SweepReport
from redis_ckpt._ops.threads import ThreadInfo
from redis_ckpt._ops.verify import Problem, ThreadReport
from redis_ckpt._retry import Retry
from redis_ckpt.aio import AsyncRedisSaver
from redis_ckpt.errors import (
    CheckpointerError,
    ClosedError,
    ConflictError,
    DamagedCheckpointError,
    NotAcknowledgedError,
    PlaintextRecordError,
    StorageVersionError,
    ValueTooLargeError,
)
from redis_ckpt.saver import RedisSaver
from redis_ckpt.serde import FastSerializer

__version__ = "0.1.0"

__all__ = [
    "TTL",
    "Ack",
    "AsyncRedisSaver",
    "CheckpointerError",
    "ClosedError",
    "ConflictError",
    "DamagedCheckpointError",
    "FastSerializer",
    "Held",
    "NamespaceStats",
    "NotAcknowledgedError",
    "Pipelining",
    "PlaintextRecordError",
    "Problem",
    "RedisSaver",
    "Retry",
    "StorageVersionError",
    "SweepReport",
    "ThreadInfo",
    "ThreadReport",
    "ThreadStats",
    "TotalStats",
    "ValueTooLargeError",
    "__version__",
]
