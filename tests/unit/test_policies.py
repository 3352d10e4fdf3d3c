"""What stays and in which steps the rest goes, without a server."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redis_ckpt import policies
from redis_ckpt._codec import Header

US = b"\x1f"


def name(checkpoint_id: str, ns: str = "") -> bytes:
    return ns.encode() + US + checkpoint_id.encode()


def head(
    parent: str = "", refs: str = "", deltas: str = "", root: str = "", run: str = "", version: str = "1"
) -> Header:
    return Header(
        parent.encode(),
        run.encode(),
        root.encode(),
        tuple(d.encode() for d in deltas.split()),
        tuple(r.encode() + US + version.encode() for r in refs.split()),
    )


def test_the_newest_of_each_namespace_stays() -> None:
    headers = {name("1"): head(), name("2"): head("1"), name("1", "sub"): head(), name("3", "sub"): head("1")}
    assert policies.keep_latest(headers) == {name("2"), name("3", "sub")}


def test_the_greatest_id_stays_whoever_came_last() -> None:
    assert policies.keep_latest({name("9"): head(), name("10"): head(), name("2"): head()}) == {name("9")}


def test_a_delta_channel_keeps_its_ancestors_down_to_its_value() -> None:
    headers = {
        name("1"): head(refs="log"),
        name("2"): head("1", refs="log"),
        name("3"): head("2", deltas="log"),
        name("4"): head("3", deltas="log"),
    }
    assert policies.keep_latest(headers) == {name("2"), name("3"), name("4")}


def test_a_delta_channel_whose_value_still_stands_needs_no_ancestors() -> None:
    headers = {name("1"): head(refs="log"), name("2"): head("1", refs="log", deltas="log")}
    assert policies.keep_latest(headers) == {name("2")}


def test_each_delta_channel_is_followed_to_its_own_value() -> None:
    headers = {
        name("1"): head(refs="b"),
        name("2"): head("1", refs="a", deltas="b"),
        name("3"): head("2", deltas="a b"),
    }
    assert policies.keep_latest(headers) == set(headers)


def test_a_delta_channel_without_any_value_keeps_the_chain_to_its_root() -> None:
    headers = {name("1"): head(), name("2"): head("1", deltas="log"), name("3"): head("2", deltas="log")}
    assert policies.keep_latest(headers) == set(headers)


def test_another_branch_does_not_stay_for_a_delta_channel() -> None:
    headers = {
        name("1"): head(refs="log"),
        name("2"): head("1", deltas="log"),
        name("3"): head("1", deltas="log"),
    }
    assert policies.keep_latest(headers) == {name("1"), name("3")}


def test_a_parent_chain_that_bites_its_tail_ends() -> None:
    headers = {name("1"): head("2", deltas="x"), name("2"): head("1", deltas="x"), name("3"): head("3", deltas="x")}
    assert policies.keep_latest(headers) == {name("3")}
    assert policies.with_ancestors(headers, {name("2")}) == {name("1"), name("2")}


def test_the_namespace_of_a_call_goes_with_the_root_that_started_it() -> None:
    headers = {
        name("1"): head(),
        name("2"): head("1"),
        name("15", "agent%3Aold"): head(root="1"),
        name("25", "agent%3Anew"): head(root="2"),
        name("15", "memory"): head(root="1"),
    }
    assert policies.keep_latest(headers) == {name("2"), name("25", "agent%3Anew"), name("15", "memory")}


def test_a_call_whose_root_is_not_saved_stays() -> None:
    headers = {name("1"): head(), name("15", "agent%3Ax"): head(root="12"), name("16", "tool%3Ay"): head()}
    assert policies.keep_latest(headers) == set(headers)


def test_runs_are_told_by_the_header() -> None:
    headers = {name("1"): head(run="a"), name("2"): head(run="b"), name("3", "s"): head(run="a"), name("4"): head()}
    assert policies.without_runs(headers, {b"a", b"zz"}) == {name("2"), name("4")}


def test_a_blob_goes_with_the_last_checkpoint_that_refers_to_it() -> None:
    thread = policies.Thread(b"1", b"3", {name("1"): head(refs="a b"), name("2"): head(refs="a"), name("3"): head()})
    assert policies.groups(thread, {name("3")}) == [
        policies.Group(name("1"), [b"\x1fb\x1f1"]),
        policies.Group(name("2"), [b"\x1fa\x1f1"]),
    ]


def test_nothing_to_remove_is_no_group() -> None:
    thread = policies.Thread(b"1", b"1", {name("1"): head(refs="a")})
    assert policies.groups(thread, {name("1")}) == []


def test_orphans_go_unless_something_that_stays_refers_to_them() -> None:
    orphans = {b"\x1fa\x1f1", b"\x1fold\x1f1"}
    thread = policies.Thread(b"1", b"1", {name("1"): head(refs="a")}, orphans)
    assert policies.groups(thread, {name("1")}) == [policies.Group(b"", [b"\x1fold\x1f1"])]


def test_the_newest_of_each_namespace_stay_as_many_as_are_wanted() -> None:
    headers = {name(str(n), ns): head() for n in range(1, 6) for ns in ("", "s")} | {name("1", "x"): head()}
    kept = {name("4"), name("5"), name("4", "s"), name("5", "s"), name("1", "x")}
    assert policies.retained(headers, 2) == kept
    assert policies.retained(headers, 9) == policies.retained(headers) == set(headers)


def test_old_ones_go_but_never_the_newest_of_a_namespace() -> None:
    headers = {name(str(n), ns): head() for n in range(1, 5) for ns in ("", "s")} | {name("1", "x"): head()}
    old = {name("1"), name("2"), *(name(str(n), "s") for n in range(1, 5)), name("1", "x")}
    kept = {name("3"), name("4"), name("4", "s"), name("1", "x")}
    assert policies.retained(headers, is_old=old.__contains__) == kept
    assert policies.retained(headers, 1, old.__contains__) == kept - {name("3")}


def test_each_root_checkpoint_that_stays_keeps_the_calls_that_it_started() -> None:
    headers = {
        **{name(str(n)): head() for n in range(1, 5)},
        **{name(f"{n}5", f"call%3A{n}"): head(root=str(n)) for n in range(1, 5)},
        name("36", "call%3A3"): head(root="3"),
    }
    kept = {name("3"), name("4"), name("35", "call%3A3"), name("36", "call%3A3"), name("45", "call%3A4")}
    assert policies.retained(headers, 2) == kept
    assert policies.retained(headers, 1) == {name("4"), name("45", "call%3A4")}


def test_a_call_goes_whose_root_is_gone_already() -> None:
    """A removal that died on the way has left it: its root is older than every one that is there."""
    headers = {name("5"): head(), name("25", "a%3Ax"): head(root="2"), name("65", "a%3Ay"): head(root="6")}
    assert policies.retained(headers) == {name("5"), name("65", "a%3Ay")}


def test_writes_without_a_checkpoint_are_late_if_they_are_older_than_all_that_stays_or_old() -> None:
    strays = [name("1"), name("3", "s"), name("5")]
    assert policies.late({name("4"), name("7", "s")}, strays) == [name("1"), name("3", "s")]
    assert policies.late({name("2")}, strays, lambda n: n == name("5")) == [name("1"), name("5")]
    assert policies.late(set(), strays) == []


def test_writes_without_a_checkpoint_go_last() -> None:
    thread = policies.Thread(b"1", b"2", {name("1"): head(), name("2"): head()})
    assert policies.groups(thread, {name("2")}, [name("0")]) == [
        policies.Group(name("1"), []),
        policies.Group(name("0"), []),
    ]


HEADERS = st.dictionaries(
    st.tuples(st.integers(1, 60).map(lambda n: f"{n:03}"), st.sampled_from(["", "s"])).map(lambda t: name(*t)),
    st.builds(
        lambda refs, version: head(refs=" ".join(sorted(refs)), version=str(version)),
        st.sets(st.sampled_from("abcd")),
        st.integers(1, 3),
    ),
    max_size=40,
)


ORPHANS = st.sets(
    st.builds(lambda c, v: b"\x1f%b\x1f%d" % (c.encode(), v), st.sampled_from("abcxyz"), st.integers(1, 3))
)


@given(HEADERS, ORPHANS, st.data())
def test_after_any_group_no_blob_that_something_needs_is_gone_and_none_is_left_over(
    headers: dict[bytes, Header], orphans: set[bytes], data: st.DataObject
) -> None:
    kept = data.draw(st.sets(st.sampled_from(sorted(headers)))) if headers else set()
    stored = {blob for n, h in headers.items() for blob in policies.blob_fields(n, h)} | orphans
    orphaned = set(orphans)
    left = dict(headers)
    for group in policies.groups(policies.Thread(b"1", b"", dict(headers), set(orphans)), kept):
        if group.checkpoint:
            del left[group.checkpoint]
        stored -= set(group.blobs)
        orphaned -= set(group.blobs)
        needed = {blob for n, h in left.items() for blob in policies.blob_fields(n, h)}
        assert needed <= stored <= needed | orphaned
    assert set(left) == kept
    assert stored == {blob for n in kept for blob in policies.blob_fields(n, headers[n])}
