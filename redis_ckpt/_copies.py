"""Messages that were restored before, as templates: copying one takes less than half the time of restoring it again.

Versions of a chat repeat their messages: in a page of `list`, and from one read of a thread to the next. A template is
found by the very bytes of its message. Its texts are shared by all copies, everything that can be changed is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from redis_ckpt._messages import Message
from redis_ckpt._shapes import IMMUTABLE

TEMPLATE_BYTES = 1000  # a template beside the bytes that it is found by and its texts; 600 to 700 on Python 3.11
NESTED_BYTES = 100  # a list, a dict or an item of one of these, and an entry of a dict once more
MOST_NESTED = 100  # of these in a message: with more it is restored each time, which then takes no longer


class Template(NamedTuple):
    """What a copy is made from."""

    message: Message
    state: dict[str, Any]
    flat: list[str]  # the fields that hold an empty list or dict
    deep: list[str]  # the other fields that can be changed
    nested: int  # lists, dicts and their items

    def copy(self) -> Any:
        """A message of its own; None where it has to be restored after all."""
        state = self.state.copy()
        for name in self.flat:
            state[name] = state[name].copy()
        for name in self.deep:
            state[name] = _copied(state[name])
        return self.message.made_of(state)


def template_of(message: Message, state: dict[str, Any]) -> Template | None:
    """The template of the state of a message that was restored; None where not all of it can be copied."""
    state = state.copy()
    flat: list[str] = []
    deep: list[str] = []
    nested = 0
    for name, field in state.items():
        kind = type(field)
        if kind in IMMUTABLE:
            continue
        if not field and (kind is dict or kind is list):
            flat.append(name)
            state[name] = kind()
        else:
            nested += _count(field, MOST_NESTED)
            if nested > MOST_NESTED:
                return None
            deep.append(name)
            state[name] = _copied(field)
    return Template(message, state, flat, deep, nested)


def _count(value: Any, most: int) -> int:
    """How many lists, dicts and items of these there are, all the way down.

    More than `most` where there are more, or where there is anything else that can be changed; nothing behind that is
    looked at.
    """
    kind = type(value)
    if kind in IMMUTABLE:
        return 1
    if kind is dict:
        count, value = 1 + len(value), value.values()
    elif kind is list:
        count = 1
    else:
        return most + 1
    for item in value:
        if count > most:
            break
        count += _count(item, most - count)
    return count


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: item if type(item) in IMMUTABLE else _copied(item) for key, item in value.items()}
    if kind is list:
        return [item if type(item) in IMMUTABLE else _copied(item) for item in value]
    return value


class Copies:
    """The templates of messages by their bytes; bounded in bytes, the older half goes at once. Threads may share it.

    No lock, which a fork might inherit closed: each step is atomic, and to forget some too many does no harm.
    """

    def __init__(self, most_bytes: float) -> None:
        self._half = most_bytes / 2
        self._young: dict[bytes, Template] = {}
        self._old: Mapping[bytes, Template] = {}
        self._young_bytes = self._old_bytes = 0

    @property
    def size_bytes(self) -> int:
        """How much memory they take."""
        return self._young_bytes + self._old_bytes

    def copy_of(self, data: bytes) -> Any:
        """A copy of the message of these bytes; None if it was not met, or has to be restored after all."""
        template = self._young.get(data) or self._old.get(data)
        return None if template is None else template.copy()

    def learn(self, data: bytes, message: Message, state: dict[str, Any]) -> None:
        """Take a template of a message that was just restored from these bytes."""
        if 2 * len(data) > self._half or (template := template_of(message, state)) is None:
            return
        size = 2 * len(data) + TEMPLATE_BYTES + NESTED_BYTES * template.nested
        if size > self._half:
            return
        if self._young_bytes + size > self._half:
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes = {}, 0
        self._young[data] = template
        self._young_bytes += size
