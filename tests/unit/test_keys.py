"""Names in Redis: each as an exact string, and that no two meet."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_ckpt import _keys as keys
from redis_ckpt._config import target_of, thread_text

US, MARK = b"\x1f", b"\x1e"
TEXT = st.text(st.characters(), max_size=12)
NASTY = st.text(st.sampled_from("a:%{}\x00\x1f\x1e \x7f3A\ud800é🙂"), max_size=8)


def test_the_five_keys_of_a_thread() -> None:
    assert keys.thread_keys(b"ckpt", "user:1 {x}") == (
        b"ckpt:{user%3A1%20%7Bx%7D}:checkpoints",
        b"ckpt:{user%3A1%20%7Bx%7D}:blobs",
        b"ckpt:{user%3A1%20%7Bx%7D}:writes",
        b"ckpt:{user%3A1%20%7Bx%7D}:order",
        b"ckpt:{user%3A1%20%7Bx%7D}:pending",
    )


def test_the_key_of_a_run() -> None:
    assert keys.run_key(b"ckpt", "r:1") == b"ckpt:run:{r%3A1}"


def test_a_checkpoint_field_names_namespace_and_id() -> None:
    assert keys.checkpoint_field("agent:6f|tool:7", "1f0a") == b"agent%3A6f|tool%3A7" + US + b"1f0a"


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (7, b"7"),
        (7.0, b"7"),
        (True, b"1"),
        (7.5, b"7.5"),
        (2**53, b"9007199254740992"),
        ("7", b"=7"),
        ("00003.0.12", b"=00003.0.12"),
        ("a:b", b"=a%3Ab"),
        (float("inf"), b"inf"),
    ],
)
def test_a_version_in_a_name(version: int | float | str, text: bytes) -> None:
    assert keys.version_text(version) == text


@given(TEXT | NASTY)
def test_quoting_is_reversible(text: str) -> None:
    assert keys.unquote(keys.quote(text)) == text


@given(TEXT | NASTY)
def test_a_quoted_part_holds_nothing_that_the_layout_uses(text: str) -> None:
    assert not set(keys.quote(text)) & {*range(0x21), *b":{}", 0x7F}


@given(st.lists(NASTY, min_size=3, max_size=3), st.lists(NASTY, min_size=3, max_size=3))
def test_different_parts_never_make_the_same_name(one: list[str], other: list[str]) -> None:
    names = [US.join(map(keys.quote, parts)) for parts in (one, other)]
    assert (names[0] == names[1]) == (one == other)


@given(NASTY.filter(bool))
def test_a_thread_is_found_again_by_its_keys(thread_id: str) -> None:
    found = keys.thread_keys(b"ckpt", thread_id)
    assert keys.thread_of_key(b"ckpt", found.order) == keys.thread_of_key(b"ckpt", found.pending) == thread_id


@pytest.mark.parametrize(
    "key",
    [
        b"ckpt:run:{r}",
        b"other:{t}:order",
        b"ckpt:{t}:others",
        b"ckpt:{t}:copying:0a:order",
        b"ckpt:{a}:{b}:order",
        b"xckpt:{t}:order",
    ],
)
def test_keys_of_others_are_no_threads(key: bytes) -> None:
    assert keys.thread_of_key(b"ckpt", key) is None


def test_glob_characters_of_a_prefix_are_escaped_in_the_scan() -> None:
    assert keys.orders_pattern(b"a*[b]?\\") == rb"a\*\[b\]\?\\:{*}:order"
    assert keys.threads_pattern(b"a*[b]?\\") == rb"a\*\[b\]\?\\:{*}:[op]*"


@pytest.mark.parametrize("prefix", ["", "a{b", "a}b", "a b", "a\n", "a\x1f", None, b"bytes"])
def test_a_prefix_that_would_break_the_layout_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        keys.check_prefix(prefix)


@pytest.mark.parametrize(("given_id", "text"), [("t", "t"), (7, "7"), (0, "0"), (UUID(int=5), str(UUID(int=5)))])
def test_thread_ids_are_taken_as_text(given_id: object, text: str) -> None:
    assert thread_text(given_id) == text


@pytest.mark.parametrize("given_id", [None, ""])
def test_a_missing_thread_id_is_refused(given_id: object) -> None:
    with pytest.raises(ValueError, match="thread_id"):
        thread_text(given_id)


@pytest.mark.parametrize("given_id", [True, 1.5, b"t", ["t"]])
def test_a_thread_id_of_another_type_is_refused(given_id: object) -> None:
    with pytest.raises(TypeError, match="thread_id"):
        thread_text(given_id)


@pytest.mark.parametrize("config", [{}, {"configurable": {}}, {"configurable": None}, None])
def test_a_config_without_a_thread_is_refused(config: object) -> None:
    with pytest.raises(ValueError, match="thread_id"):
        target_of(config)  # type: ignore[arg-type]


def test_a_config_may_leave_out_namespace_and_id() -> None:
    assert target_of({"configurable": {"thread_id": 1, "checkpoint_ns": None}}) == ("1", "", "")


# What a listing range selects, computed here on plain sets of members, the way Redis orders bytes.

NAMESPACES = ["", "a", "a:b", "b"]
IDS = ["1", "10", "2", "20", "3"]


def _members(checkpoints: list[tuple[str, str]]) -> list[bytes]:
    plain = [keys.checkpoint_field(ns, i) for ns, i in checkpoints]
    marked = [MARK + keys.quote(i) + US + keys.quote(ns) for ns, i in checkpoints if ns]
    return sorted(plain + marked)


def _select(members: list[bytes], bounds: keys.Range) -> list[bytes]:
    def above(m: bytes) -> bool:
        return bounds.low == b"-" or (m >= bounds.low[1:] if bounds.low[:1] == b"[" else m > bounds.low[1:])

    def below(m: bytes) -> bool:
        return bounds.high == b"+" or (m <= bounds.high[1:] if bounds.high[:1] == b"[" else m < bounds.high[1:])

    return [m for m in members if above(m) and below(m)]


def _listed(members: list[bytes], ranges: tuple[keys.Range, keys.Range]) -> list[tuple[str, str]]:
    found = [keys.split_checkpoint_field(m) for m in _select(members, ranges[0])]
    for m in _select(members, ranges[1]):
        checkpoint_id, ns = m[1:].split(US)
        found.append((keys.unquote(ns), keys.unquote(checkpoint_id)))
    return sorted(found, key=lambda c: (c[1], c[0]), reverse=True)


ALL = [(ns, i) for ns in NAMESPACES for i in IDS]


@given(
    st.sets(st.sampled_from(ALL)),
    st.none() | st.sampled_from(NAMESPACES),
    st.none() | st.tuples(st.sampled_from(IDS), st.sampled_from(NAMESPACES)),
    st.none() | st.sampled_from(IDS),
)
def test_listing_ranges_select_what_a_list_means(
    stored: set[tuple[str, str]], ns: str | None, below: tuple[str, str] | None, exact: str | None
) -> None:
    if ns is not None and below is not None:
        below = (below[0], ns)
    expected = sorted(
        (
            (n, i)
            for n, i in stored
            if (ns is None or n == ns) and (exact is None or i == exact) and (below is None or (i, n) < below)
        ),
        key=lambda c: (c[1], c[0]),
        reverse=True,
    )
    assert _listed(_members(sorted(stored)), keys.listing_ranges(ns, below, exact)) == expected


@given(st.sets(st.sampled_from(ALL)), st.sampled_from(IDS))
def test_newer_ranges_select_the_greater_ids(stored: set[tuple[str, str]], greatest: str) -> None:
    ranges = keys.newer_ranges(greatest.encode())
    expected = sorted(((n, i) for n, i in stored if i > greatest), key=lambda c: (c[1], c[0]), reverse=True)
    assert _listed(_members(sorted(stored)), ranges) == expected


@given(st.sets(st.sampled_from(ALL)))
def test_the_plain_range_passes_each_checkpoint_once(stored: set[tuple[str, str]]) -> None:
    members, seen, after = _members(sorted(stored)), [], b""
    while page := _select(members, keys.plain_range(after))[:3]:
        seen += page
        after = page[-1]
    assert seen == sorted(keys.checkpoint_field(ns, i) for ns, i in stored)
