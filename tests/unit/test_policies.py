"""What stays and in which steps the rest goes, without a server."""

from __future__ import annotations

from typing import Any

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


def thread(headers: dict[bytes, Header], ancestors: set[bytes] | None = None, **rest: Any) -> policies.Thread:
    return policies.Thread(b"1", b"", dict(headers), ancestors or set(), **rest)


def keep_latest(headers: dict[bytes, Header]) -> policies.Kept:
    return policies.keep_latest(thread(headers))


def only(*names: bytes) -> policies.Kept:
    return policies.Kept(set(names), {})


def test_the_newest_of_each_namespace_stays() -> None:
    headers = {name("1"): head(), name("2"): head("1"), name("1", "sub"): head(), name("3", "sub"): head("1")}
    assert keep_latest(headers) == only(name("2"), name("3", "sub"))


def test_the_greatest_id_stays_whoever_came_last() -> None:
    assert keep_latest({name("9"): head(), name("10"): head(), name("2"): head()}) == only(name("9"))


def test_a_delta_channel_keeps_its_ancestors_down_to_its_value() -> None:
    headers = {
        name("1"): head(refs="log"),
        name("2"): head("1", refs="log"),
        name("3"): head("2", deltas="log"),
        name("4"): head("3", deltas="log"),
    }
    assert keep_latest(headers) == policies.Kept({name("4")}, {name("3"): set(), name("2"): {b"log"}})


def test_a_delta_channel_whose_value_still_stands_needs_no_ancestors() -> None:
    headers = {name("1"): head(refs="log"), name("2"): head("1", refs="log", deltas="log")}
    assert keep_latest(headers) == only(name("2"))


def test_each_delta_channel_is_followed_to_its_own_value() -> None:
    headers = {
        name("1"): head(refs="b"),
        name("2"): head("1", refs="a", deltas="b"),
        name("3"): head("2", deltas="a b"),
    }
    assert keep_latest(headers) == policies.Kept({name("3")}, {name("2"): {b"a"}, name("1"): {b"b"}})


def test_a_delta_channel_without_any_value_keeps_the_chain_to_its_root() -> None:
    headers = {name("1"): head(), name("2"): head("1", deltas="log"), name("3"): head("2", deltas="log")}
    assert keep_latest(headers) == policies.Kept({name("3")}, {name("2"): set(), name("1"): set()})


def test_another_branch_does_not_stay_for_a_delta_channel() -> None:
    headers = {
        name("1"): head(refs="log"),
        name("2"): head("1", deltas="log"),
        name("3"): head("1", deltas="log"),
    }
    assert keep_latest(headers) == policies.Kept({name("3")}, {name("1"): {b"log"}})


def test_a_parent_chain_that_bites_its_tail_ends() -> None:
    headers = {name("1"): head("2", deltas="x"), name("2"): head("1", deltas="x"), name("3"): head("3", deltas="x")}
    assert keep_latest(headers) == only(name("3"))
    assert policies.with_ancestors(headers, {name("2")}) == policies.Kept({name("2")}, {name("1"): set()})


def test_the_namespace_of_a_call_goes_with_the_root_that_started_it() -> None:
    headers = {
        name("1"): head(),
        name("2"): head("1"),
        name("15", "agent%3Aold"): head(root="1"),
        name("25", "agent%3Anew"): head(root="2"),
        name("15", "memory"): head(root="1"),
    }
    assert keep_latest(headers) == only(name("2"), name("25", "agent%3Anew"), name("15", "memory"))


def test_a_call_whose_root_is_not_saved_stays() -> None:
    headers = {name("1"): head(), name("15", "agent%3Ax"): head(root="12"), name("16", "tool%3Ay"): head()}
    assert keep_latest(headers) == only(*headers)


def test_runs_are_told_by_the_header() -> None:
    headers = {name("1"): head(run="a"), name("2"): head(run="b"), name("3", "s"): head(run="a"), name("4"): head()}
    assert policies.without_runs(thread(headers), {b"a", b"zz"}) == only(name("2"), name("4"))


def test_ancestors_go_with_their_run_and_with_those_that_needed_them() -> None:
    headers = {
        name("1"): head(refs="log", run="a"),
        name("2"): head("1", deltas="log", run="b"),
        name("3"): head("2", deltas="log", run="c"),
    }
    now = thread(headers, {name("1"), name("2")})
    assert policies.without_runs(now, {b"x"}) == policies.Kept({name("3")}, {name("2"): set(), name("1"): {b"log"}})
    assert policies.without_runs(now, {b"a"}) == policies.Kept({name("3")}, {name("2"): set()})
    assert policies.without_runs(now, {b"b"}) == only(name("3"))
    assert policies.without_runs(now, {b"c"}) == only()


def test_the_newest_goes_first_and_a_blob_with_the_last_checkpoint_that_refers_to_it() -> None:
    now = thread({name("1"): head(refs="a b"), name("2"): head(refs="a c"), name("3"): head()})
    assert policies.groups(now, only(name("3"))) == [
        policies.Group(name("2"), [b"\x1fc\x1f1"]),
        policies.Group(name("1"), [b"\x1fa\x1f1", b"\x1fb\x1f1"]),
    ]


def test_an_ancestor_keeps_only_the_values_that_are_needed_of_it() -> None:
    now = thread({name("1"): head(refs="log big"), name("2"): head("1", refs="big", version="2", deltas="log")})
    kept = policies.keep_latest(now)
    (group,) = policies.groups(now, kept)
    assert group == policies.Group(name("1"), [b"\x1fbig\x1f1"], (b"log\x1f1",))
    after = thread({**now.headers, name("1"): head(refs="log")}, {name("1")})
    assert policies.groups(after, policies.keep_latest(after)) == []


def test_an_ancestor_that_is_no_longer_needed_goes() -> None:
    headers = {name("1"): head(refs="log"), name("2"): head("1", deltas="log"), name("3"): head("2", refs="log")}
    now = thread(headers, {name("1")})
    assert policies.groups(now, policies.keep_latest(now)) == [
        policies.Group(name("2"), []),
        policies.Group(name("1"), [] if headers[name("1")].refs == headers[name("3")].refs else [b"\x1flog\x1f1"]),
    ]


def test_nothing_to_remove_is_no_group() -> None:
    assert policies.groups(thread({name("1"): head(refs="a")}), only(name("1"))) == []


def test_orphans_go_unless_something_that_stays_refers_to_them() -> None:
    now = thread({name("1"): head(refs="a")}, orphans={b"\x1fa\x1f1", b"\x1fold\x1f1"})
    assert policies.groups(now, only(name("1"))) == [policies.Group(b"", [b"\x1fold\x1f1"])]


def test_the_newest_of_each_namespace_stay_as_many_as_are_wanted() -> None:
    headers = {name(str(n), ns): head() for n in range(1, 6) for ns in ("", "s")} | {name("1", "x"): head()}
    kept = {name("4"), name("5"), name("3", "s"), name("4", "s"), name("5", "s"), name("1", "x")}
    assert policies.retained(thread(headers), 2).checkpoints == kept
    assert policies.retained(thread(headers), 9) == policies.retained(thread(headers)) == only(*headers)


def test_a_memory_keeps_what_each_older_root_that_stays_would_look_for() -> None:
    memory = {name(n, "memory"): head() for n in ("05", "11", "12", "22", "31", "32")}
    headers = {name(n): head() for n in ("10", "20", "30", "40")} | memory
    kept = policies.retained(thread(headers), 3).checkpoints
    assert kept == {*(name(n) for n in ("20", "30", "40")), *(name(n, "memory") for n in ("12", "22", "31", "32"))}
    assert policies.retained(thread(headers), 1) == only(name("40"), name("32", "memory"))
    only_root_is_old = policies.retained(thread(headers), is_old=lambda n: n < name("25")).checkpoints
    assert only_root_is_old == {name("30"), name("40"), *memory}
    without = {name("10"): head(), name("20"): head(), name("30", "memory"): head()}
    assert policies.retained(thread(without)) == only(*without)


def test_old_ones_go_but_never_the_newest_of_a_namespace() -> None:
    headers = {name(str(n), ns): head() for n in range(1, 5) for ns in ("", "s")} | {name("1", "x"): head()}
    old = {name("1"), name("2"), *(name(str(n), "s") for n in range(1, 5)), name("1", "x")}
    kept = {name("3"), name("4"), name("2", "s"), name("4", "s"), name("1", "x")}
    assert policies.retained(thread(headers), is_old=old.__contains__) == only(*kept)
    assert policies.retained(thread(headers), 1, old.__contains__) == only(*kept - {name("3"), name("2", "s")})


def test_each_root_checkpoint_that_stays_keeps_the_calls_that_it_started() -> None:
    headers = {
        **{name(str(n)): head() for n in range(1, 5)},
        **{name(f"{n}5", f"call%3A{n}"): head(root=str(n)) for n in range(1, 5)},
        name("36", "call%3A3"): head(root="3"),
    }
    kept = {name("3"), name("4"), name("35", "call%3A3"), name("36", "call%3A3"), name("45", "call%3A4")}
    assert policies.retained(thread(headers), 2) == only(*kept)
    assert policies.retained(thread(headers), 1) == only(name("4"), name("45", "call%3A4"))


def test_a_call_goes_whose_root_is_gone_already() -> None:
    """A removal that died on the way has left it: its root is older than every one that is there."""
    headers = {name("5"): head(), name("25", "a%3Ax"): head(root="2"), name("65", "a%3Ay"): head(root="6")}
    assert policies.retained(thread(headers)) == only(name("5"), name("65", "a%3Ay"))


def test_writes_without_a_checkpoint_are_late_if_they_are_older_than_all_that_stays_or_old() -> None:
    strays = [name("1"), name("3", "s"), name("5")]
    assert policies.late({name("4"), name("7", "s")}, strays) == [name("1"), name("3", "s")]
    assert policies.late({name("2")}, strays, lambda n: n == name("5")) == [name("1"), name("5")]
    assert policies.late(set(), strays) == []


def test_writes_without_a_checkpoint_go_last() -> None:
    now = thread({name("1"): head(), name("2"): head()})
    assert policies.groups(now, only(name("2")), [name("0")]) == [
        policies.Group(name("1"), []),
        policies.Group(name("0"), []),
    ]


def chain(drawn: list[tuple[set[str], set[str], int, str]]) -> dict[bytes, Header]:
    """A thread of two namespaces: each checkpoint has one before it as its parent, or none."""
    made: dict[str, list[str]] = {"": [], "s": []}
    headers = {}
    for n, (refs, deltas, back, ns) in enumerate(drawn):
        parent = made[ns][-back] if 0 < back <= len(made[ns]) else ""
        headers[name(f"{n:03}", ns)] = head(
            parent, " ".join(sorted(refs)), " ".join(sorted(deltas - refs)), version=str(n % 4)
        )
        made[ns].append(f"{n:03}")
    return headers


NAMES = st.sets(st.sampled_from("abcd"))


def test_children_go_before_their_parents_whatever_their_ids_say() -> None:
    """A worker whose clock was wrong has made the parent newer than the child."""
    now = thread({name("9"): head(refs="log"), name("5"): head("9", deltas="log"), name("7"): head("5", refs="log")})
    assert [g.checkpoint for g in policies.groups(now, only(name("7")))] == [name("5"), name("9")]
    cycle = thread({name("1"): head("2"), name("2"): head("1"), name("3"): head("3")})
    assert {g.checkpoint for g in policies.groups(cycle, only())} == set(cycle.headers)


def test_pending_sends_of_old_formats_keep_the_parent_that_has_them() -> None:
    headers = {name("1"): head(), name("2"): head("1"), name("3"): head("2", deltas="__pregel_tasks")}
    assert keep_latest(headers) == policies.Kept({name("3")}, {name("2"): set()})


def test_long_chains_are_followed_once() -> None:
    """Each checkpoint needs its ancestors down to the first; each is walked once for all that stay."""
    looks = 0

    class Counted(dict[bytes, Header]):
        def __getitem__(self, key: bytes) -> Header:
            nonlocal looks
            looks += 1
            return super().__getitem__(key)

    chain = Counted({name(f"{n:05}"): head(f"{n - 1:05}", deltas="log") for n in range(1, 2001)})
    assert policies.with_ancestors(chain, set(chain)).ancestors == {}
    branches = set(list(chain)[-100:])
    assert len(policies.with_ancestors(chain, branches).ancestors) == 1900
    assert looks < 10 * len(chain)


HEADERS = st.lists(st.tuples(NAMES, NAMES, st.integers(0, 3), st.sampled_from(["", "s"])), max_size=25).map(chain)
ORPHANS = st.sets(
    st.builds(lambda c, v: b"\x1f%b\x1f%d" % (c.encode(), v), st.sampled_from("abcxyz"), st.integers(1, 3))
)


def follow(headers: dict[bytes, Header], ancestors: set[bytes], group: policies.Group) -> None:
    if group.refs is not None:
        headers[group.checkpoint] = headers[group.checkpoint]._replace(refs=group.refs)
        ancestors.add(group.checkpoint)
    elif group.checkpoint:
        del headers[group.checkpoint]
        ancestors.discard(group.checkpoint)


def seeds(headers: dict[bytes, Header], start: bytes) -> dict[bytes, list[bytes]]:
    """For each delta channel of a checkpoint the way to its value: what its value is rebuilt from."""
    found = {}
    for channel in set(headers[start].deltas) - set(policies.channels(headers[start])):
        way, at = [], start
        while (at := b"%b\x1f%b" % (policies.split(start)[0], headers[at].parent)) in headers:
            way.append(at)
            if channel in policies.channels(headers[at]):
                break
        found[channel] = way
    return found


@given(HEADERS, ORPHANS, st.data())
def test_after_any_group_no_blob_that_something_needs_is_gone_and_none_is_left_over(
    headers: dict[bytes, Header], orphans: set[bytes], data: st.DataObject
) -> None:
    picked = data.draw(st.sets(st.sampled_from(sorted(headers)))) if headers else set()
    kept = policies.with_ancestors(headers, picked)
    stored = {blob for n, h in headers.items() for blob in policies.blob_fields(n, h)} | orphans
    ways = {n: seeds(headers, n) for n in headers}
    orphaned, left, ancestors = set(orphans), dict(headers), set[bytes]()
    for group in policies.groups(thread(headers, orphans=set(orphans)), kept):
        follow(left, ancestors, group)
        stored -= set(group.blobs)
        orphaned -= set(group.blobs)
        needed = {blob for n, h in left.items() for blob in policies.blob_fields(n, h)}
        assert needed <= stored <= needed | orphaned
        # What readers see is whole between any two groups: each delta channel finds the way that it had.
        for n in left.keys() - ancestors:
            assert seeds(left, n) == ways[n]
    assert left.keys() - ancestors == picked
    assert ancestors == set(kept.ancestors)
    assert stored == {blob for n, h in left.items() for blob in policies.blob_fields(n, h)}
    assert policies.groups(thread(left, ancestors), policies.with_ancestors(left, picked)) == []


# Deltas.


def blob(version: int, channel: str = "a", ns: str = "") -> bytes:
    return b"%b\x1f%b\x1f%d" % (ns.encode(), channel.encode(), version)


def test_what_a_blob_is_built_on_is_followed_to_the_whole_one() -> None:
    bases = {blob(3): blob(2), blob(2): blob(1), blob(5): blob(3)}
    assert policies.with_bases([blob(5)], bases) == {blob(5), blob(3), blob(2), blob(1)}
    assert policies.with_bases([blob(2), blob(9)], bases) == {blob(2), blob(1), blob(9)}
    assert policies.with_bases([], bases) == set()
    assert policies.with_bases([blob(1)], {blob(1): blob(2), blob(2): blob(1)}) == {blob(1), blob(2)}


def test_a_base_stays_with_what_is_built_on_it_and_goes_with_the_last() -> None:
    headers = {name(str(n)): head(refs="a", version=str(n)) for n in (1, 2, 3)}
    now = thread(headers, bases={blob(2): blob(1), blob(3): blob(2)})
    assert policies.groups(now, only(name("3"))) == [policies.Group(name("2"), []), policies.Group(name("1"), [])]
    assert policies.groups(now, only(name("1"))) == [
        policies.Group(name("3"), [blob(3)]),
        policies.Group(name("2"), [blob(2)]),
    ]
    later = thread({name("3"): headers[name("3")], name("4"): head()}, bases=now.bases)
    (group,) = policies.groups(later, only(name("4")))
    assert (group.checkpoint, sorted(group.blobs)) == (name("3"), [blob(1), blob(2), blob(3)])


def test_bases_of_orphans_go_before_them_unless_something_needs_them() -> None:
    now = thread({name("1"): head(refs="a")}, orphans={blob(3)}, bases={blob(3): blob(2), blob(2): blob(1)})
    assert policies.groups(now, only(name("1"))) == [policies.Group(b"", [blob(2)]), policies.Group(b"", [blob(3)])]


@st.composite
def chains(draw: st.DrawFn, headers: dict[bytes, Header], orphans: set[bytes]) -> dict[bytes, bytes]:
    """Bases of some of the blobs: earlier versions of the same channel, whether a checkpoint names them or not."""
    bases = {}
    begun = {field for n, h in headers.items() for field in policies.blob_fields(n, h)} | orphans
    while begun:
        field = min(begun)
        begun.remove(field)
        front, _, version = field.rpartition(b"\x1f")
        if int(version) and draw(st.booleans()):
            bases[field] = b"%b\x1f%d" % (front, draw(st.integers(0, int(version) - 1)))
            begun |= {bases[field]} - bases.keys()
    return bases


@given(HEADERS, ORPHANS, st.data())
def test_after_any_group_the_bases_of_all_that_is_left_are_there_and_no_others(
    headers: dict[bytes, Header], orphans: set[bytes], data: st.DataObject
) -> None:
    picked = data.draw(st.sets(st.sampled_from(sorted(headers)))) if headers else set()
    bases = data.draw(chains(headers, orphans))

    def needed() -> set[bytes]:
        return policies.with_bases((b for n, h in left.items() for b in policies.blob_fields(n, h)), bases)

    left, orphaned, ancestors = dict(headers), set(orphans), set[bytes]()
    stored = needed() | policies.with_bases(orphans, bases)
    kept = policies.with_ancestors(headers, picked)
    for group in policies.groups(thread(headers, orphans=set(orphans), bases=bases), kept):
        assert set(group.blobs) <= stored
        follow(left, ancestors, group)
        stored -= set(group.blobs)
        orphaned -= set(group.blobs)
        # A plan that ends here is made anew: what is left over is found by the orphans that are left.
        assert needed() <= stored <= needed() | policies.with_bases(orphaned, bases)
    assert stored == needed()
    assert left.keys() - ancestors == picked
    assert policies.groups(thread(left, ancestors, bases=bases), policies.with_ancestors(left, picked)) == []
