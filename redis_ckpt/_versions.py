"""Versions of channels: 53-bit integers, a count of steps above random bits.

Two branches that fork from one checkpoint give the same channel a next version each; the random bits keep
these apart (a clash has a chance of one in 2**29), so a version names one value. 53 bits are exact in Lua
and JSON. LangGraph compares versions with `>` and takes the maximum over all channels for the next one.
"""

from __future__ import annotations

import math
import re

from redis_ckpt._process import dice

RANDOM_BITS = 29
STEP_BITS = 53 - RANDOM_BITS

_SUFFIX = re.compile(r"~(\d{16})\.\d{16}$")


def next_version(current: int | float | str | None) -> int | float | str:
    """A version greater than `current`, of the same kind: a thread that came from elsewhere goes on in its own."""
    if isinstance(current, str):
        return _next_text(current)
    following = ((int(current or 0) >> RANDOM_BITS) + 1) << RANDOM_BITS
    version = following | dice.getrandbits(RANDOM_BITS)
    if isinstance(current, float):
        return max(float(version), math.nextafter(current, math.inf))
    return version


def _next_text(current: str) -> str:
    """In the form of LangGraph's own savers, `{step:032}.{random}`; other texts get a suffix that counts."""
    step, _, _ = current.partition(".")
    if step.isdecimal():
        grown = f"{int(step) + 1:0{max(32, len(step))}}.{dice.getrandbits(53):016}"
        if grown > current:
            return grown
    suffix = _SUFFIX.search(current)
    base, count = (current[: suffix.start()], int(suffix[1])) if suffix else (current, 0)
    return f"{base}~{count + 1:016}.{dice.getrandbits(53):016}"


_UNIQUE_TEXT = re.compile(rb"=(?:\d{32,}\.(?:0\.\d{6,}|\d{16})|.*~\d{16}\.\d{16})", re.DOTALL)


def is_unique(version: bytes) -> bool:
    """Whether a version, as text, has a random part: then it never comes twice with other bytes.

    Ours have, and LangGraph's `{step:032}.{random}`. Hand-made ones such as 1 and 2 do repeat.
    """
    if version.isdigit():
        return len(version) >= 9 and int(version) >> RANDOM_BITS > 0
    return _UNIQUE_TEXT.fullmatch(version) is not None


def is_later(version: bytes, other: bytes) -> bool:
    """Whether a version, as text, is greater than another of the same kind."""
    if version.isdigit() and other.isdigit():
        return int(version) > int(other)
    return version[:1] == other[:1] == b"=" and version > other
