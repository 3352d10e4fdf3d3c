"""How long threads and checkpoints are kept: what users may say of it, checked before anything is read or sent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from langchain_core.runnables import RunnableConfig

MOST_SECONDS = 100 * 365 * 24 * 3600.0
FOREVER_MS = 0  # an idle time of 0 ms stands for none, in the scripts and in what is stored
CHECKPOINT_TTL = "checkpoint_ttl"
TTL_FORMS = ', a TTL, or {"default_ttl": minutes}'
_MAPPING_KEYS = {"default_ttl", "refresh_on_read"}


def seconds_of(value: Any, what: str, *, zero: bool = False, forms: str = "") -> float:
    """A length of time in seconds, from a number of seconds or a timedelta.

    Raises:
        ValueError: It is negative, NaN, more than a hundred years, or zero where that is not allowed.
        TypeError: It is neither a number nor a timedelta.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} must be a number of seconds or a timedelta{forms}, not {value!r}")
    if not (0 < value <= MOST_SECONDS or (zero and value == 0)):
        bound = "0 or more" if zero else "more than 0"
        raise ValueError(f"{what} must be {bound} seconds and at most 100 years, not {value!r}")
    return float(value)


def idle_ms_of(value: Any, what: str, forms: str = "") -> int:
    """An idle time in whole milliseconds, rounded up: see `seconds_of`."""
    seconds = seconds_of(value, what, forms=forms)
    if isinstance(value, timedelta):
        return -(-value // timedelta(milliseconds=1))
    return math.ceil(Decimal(str(seconds)) * 1000)  # the float 2.007 * 1000 is a little more than 2007


def count_of(value: Any, what: str) -> int | None:
    """A number of checkpoints to keep.

    Raises:
        ValueError: It is below 1.
        TypeError: It is no whole number.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be a number of checkpoints, or None, not {value!r}")
    if value < 1:
        raise ValueError(f"{what} must be 1 or more, not {value!r}: the newest checkpoint always stays")
    return value


@dataclass(frozen=True, init=False)
class TTL:
    """How long a thread is kept after its last use.

    Args:
        idle: Seconds, or a timedelta. Parts of a millisecond are rounded up.
        refresh_on_read: Whether reading counts as use; writing always does.

    Attributes:
        idle_ms: The idle time in milliseconds.
        refresh_on_read: Whether reading counts as use.

    Raises:
        ValueError: The time is zero, negative, NaN or more than a hundred years.
        TypeError: It is no length of time, or `refresh_on_read` is no bool.
    """

    idle_ms: int
    refresh_on_read: bool

    def __init__(self, idle: float | timedelta, refresh_on_read: bool = False) -> None:
        object.__setattr__(self, "idle_ms", idle_ms_of(idle, "ttl"))
        object.__setattr__(self, "refresh_on_read", _switch(refresh_on_read))

    def __repr__(self) -> str:
        return f"TTL({self.idle_ms / 1000:.16g}, refresh_on_read={self.refresh_on_read})"

    def __reduce__(self) -> Any:
        return type(self), (timedelta(milliseconds=self.idle_ms), self.refresh_on_read)


def _of_minutes(minutes: Any) -> Any:
    if minutes is None or isinstance(minutes, timedelta):
        return minutes
    if isinstance(minutes, bool) or not isinstance(minutes, (int, float)):
        raise TypeError(f"ttl['default_ttl'] must be a number of minutes or a timedelta, not {minutes!r}")
    if not 0 < minutes * 60 <= MOST_SECONDS:
        raise ValueError(f"ttl['default_ttl'] must be more than 0 minutes and at most 100 years, not {minutes!r}")
    return minutes * 60


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"refresh_on_read must be True or False, not {value!r}")
    return value


@dataclass(frozen=True)
class Expiry:
    """What a saver says of the life of threads.

    Attributes:
        idle_ms: The idle time in milliseconds; 0 is none.
        refresh_on_read: Whether reading counts as use.
    """

    idle_ms: int = FOREVER_MS
    refresh_on_read: bool = False

    @classmethod
    def of(cls, ttl: Any, refresh_on_read: bool = False) -> Expiry:
        """From the arguments of a saver, in all forms that they have.

        Raises:
            ValueError: The time is zero, negative, NaN or more than a hundred years, or a mapping has unknown keys.
            TypeError: It has none of the forms.
        """
        refresh = _switch(refresh_on_read)
        if isinstance(ttl, Mapping):
            # the form of langgraph-checkpoint-redis, in minutes
            if unknown := sorted(map(str, set(ttl) - _MAPPING_KEYS)):
                raise ValueError(f"ttl has the unknown keys {unknown}: it takes 'default_ttl' and 'refresh_on_read'")
            refresh = _switch(ttl.get("refresh_on_read", False)) or refresh
            ttl = _of_minutes(ttl.get("default_ttl"))
        if isinstance(ttl, TTL):
            return cls(ttl.idle_ms, ttl.refresh_on_read or refresh)
        return cls(FOREVER_MS if ttl is None else idle_ms_of(ttl, "ttl", TTL_FORMS), refresh)

    def written(self, config: RunnableConfig) -> int:
        """The idle time that a write of this run brings, in milliseconds; 0 is none.

        Raises:
            ValueError: The run's own `checkpoint_ttl` is no idle time.
            TypeError: It is no length of time at all.
        """
        own = config["configurable"].get(CHECKPOINT_TTL)
        return self.idle_ms if own is None else idle_ms_of(own, CHECKPOINT_TTL)

    def read(self, config: RunnableConfig) -> int | None:
        """The same for a read; None where reads do not count."""
        idle_ms = self.written(config)
        return idle_ms if self.refresh_on_read else None
