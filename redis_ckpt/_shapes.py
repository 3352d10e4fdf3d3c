"""Which values pydantic takes as they are: exact types, read from a model's annotations.

A value fits when dumping it gives an equal one without a warning, and validating it gives an equal one in the same
order. What an annotation beyond those known here would do is not guessed: it raises `UnknownShapeError`.

The tests are compiled from source text, as dataclasses compile theirs: a loop over the nine fields of a message takes
longer than packing them does (2026-11-30: 1,500 ns against 800 ns; compiled, 400 ns).
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from typing_extensions import NotRequired, Required, get_type_hints, is_typeddict

IMMUTABLE = frozenset({str, int, float, bool, bytes, type(None)})  # what may be shared: nobody can change it
MAX_OPTIONAL = 6  # fields of a `TypedDict` that may be missing; the orders of its keys double with each

_numbers = itertools.count()


class UnknownShapeError(Exception):
    """An annotation that is not among those known here."""


class Kind(NamedTuple):
    """The values that a field takes as they are."""

    types: frozenset[type] | None  # None: any value at all
    dumps: str  # an expression that is true of a `{v}` that is dumped as it is
    validates: str  # the same of one that is also validated to itself
    names: Mapping[str, Any]  # what the expressions call by name
    samples: tuple[Any, ...]  # the first is the barest, the last the fullest


def _plain(kind: type, test: str, *samples: Any) -> Kind:
    return Kind(frozenset({kind}), test, test, {}, samples)


_MAPPINGS: tuple[dict[str, Any], ...] = ({}, {"k": {"z": [1, None, 2.5, True]}, "text": " A b "})
_PLAIN: dict[Any, Kind] = {
    Any: Kind(None, "True", "True", {}, (None, "text", {"k": [1, {"z": None}]})),
    str: _plain(str, "type({v}) is str", "", " A Text, 12é\n"),
    int: _plain(int, "type({v}) is int", 0, 7),
    float: _plain(float, "type({v}) is float", 0.0, 2.5),
    bool: _plain(bool, "type({v}) is bool", False, True),
    None: _plain(type(None), "{v} is None", None),
    dict: _plain(dict, "type({v}) is dict", *_MAPPINGS),
}


def kind_of(hint: Any, extra: bool) -> Kind:
    """The values that a field with this annotation takes as they are.

    Args:
        hint: The annotation.
        extra: Whether a `TypedDict` in it keeps keys that it does not name.

    Raises:
        UnknownShapeError: It is none of the known annotations.
    """
    origin: Any = get_origin(hint)
    args = get_args(hint)
    if hint is type(None):
        return _PLAIN[None]
    if hint in (Any, None) or (isinstance(hint, type) and origin is None and hint in _PLAIN):
        return _PLAIN[hint]
    if origin is Union or origin is types.UnionType:
        return _one_of([kind_of(arg, extra) for arg in args])
    if origin is Literal and all(type(arg) is str for arg in args):
        allowed = f"in {_escaped(args)}" if len(args) > 1 else f"== {_escaped(args[0])}"
        return _plain(str, f"(type({{v}}) is str and {{v}} {allowed})", *args)
    if origin is dict and args == (Any, Any):
        return _PLAIN[dict]
    if origin is dict and args == (str, Any):
        # joining raises TypeError where a key is no string; that takes half of the time of any way to ask
        return _PLAIN[dict]._replace(validates="(type({v}) is dict and (not {v} or ''.join({v}) is not None))")
    if origin is list and len(args) == 1:
        return _list_of(kind_of(args[0], extra))
    if is_typeddict(hint):
        return _mapping_of(hint, extra)
    raise UnknownShapeError(repr(hint))


def _escaped(value: Any) -> str:
    """Source text of a constant, to stand in a template."""
    return repr(value).replace("{", "{{").replace("}", "}}")


def _one_of(kinds: list[Kind]) -> Kind:
    found: set[type] = set()
    for kind in kinds:
        if kind.types is None or not found.isdisjoint(kind.types):
            # which member pydantic would choose is not worth knowing
            raise UnknownShapeError("a union of kinds that overlap")
        found |= kind.types
    samples = [sample for kind in kinds for sample in kind.samples]
    samples.sort(key=lambda sample: sample is not None)  # the barest first
    return Kind(
        frozenset(found),
        _either(kind.dumps for kind in kinds),
        _either(kind.validates for kind in kinds),
        _names(kinds),
        tuple(samples),
    )


def _list_of(kind: Kind) -> Kind:
    names = _names([kind])
    dumps, validates = (
        "type({v}) is list" + (f" and (not {{v}} or {_loop(test, names)}({{v}}))" if test != "True" else "")
        for test in (kind.dumps, kind.validates)
    )
    samples = ([], *([sample] for sample in kind.samples), list(kind.samples))
    return Kind(frozenset({list}), f"({dumps})", f"({validates})", names, samples)


def _loop(test: str, names: dict[str, Any]) -> str:
    """The name of a new function, added to the names: whether all items of a list pass a test."""
    name = f"all{next(_numbers)}"
    condition = test.format(v="v")
    compile_into(
        names, f"def {name}(items):", " for v in items:", f"  if not ({condition}):", "   return False", " return True"
    )
    return name


def compile_into(names: dict[str, Any], *lines: str) -> None:
    """Run source text, whose names are these, and add those that it defines."""
    exec("\n".join(lines), names)


def _mapping_of(hint: Any, extra: bool) -> Kind:
    if getattr(hint, "__pydantic_config__", None) is not None:
        raise UnknownShapeError(f"{hint!r} has a configuration of its own")
    kinds: dict[str, Kind] = {}
    required = set(hint.__required_keys__)
    for name, annotation in get_type_hints(hint, include_extras=True).items():
        origin: Any = get_origin(annotation)
        if origin in (Required, NotRequired):
            # of annotations that are strings the class itself has not seen this
            (required.add if origin is Required else required.discard)(name)
            (annotation,) = get_args(annotation)
        kinds[name] = kind_of(annotation, extra)
    names = _names(kinds.values())
    orders = frozenset(_orders(kinds, required))
    names[known := f"orders{next(_numbers)}"] = orders
    names[extended := f"extended{next(_numbers)}"] = lambda mapping: _is_extended(mapping, tuple(kinds), orders)
    tail = f" or {extended}({{v}})" if extra else ""
    absent = {name: "" if name in required else f"{_escaped(name)} not in {{v}} or " for name in kinds}
    dumps = ["type({v}) is dict", *(f"({absent[n]}{_of_item(n, kind.dumps)})" for n, kind in kinds.items())]
    if not extra:
        count = " + ".join((str(len(required)), *(f"({_escaped(name)} in {{v}})" for name in kinds if absent[name])))
        dumps.append(f"len({{v}}) == {count}")
    validates = ["type({v}) is dict", f"((*{{v}},) in {known}{tail})"]
    validates += [f"({absent[n]}{_of_item(n, kind.validates)})" for n, kind in kinds.items()]
    samples = tuple(samples_of(kinds, required, extra))
    return Kind(frozenset({dict}), f"({_all(dumps)})", f"({_all(validates)})", names, samples)


def _of_item(name: str, test: str) -> str:
    """A test of a value as one of a mapping's item; where the value is first looked at, it is looked up."""
    key, variable = _escaped(name), f"w{next(_numbers)}"
    before, mentioned, after = test.partition("{v}")
    if not mentioned:  # any value will do
        return f"{key} in {{v}}"
    return f"{before}({variable} := {{v}}[{key}]){after.replace('{v}', variable)}"


def _orders(kinds: Mapping[str, Kind], required: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """The orders of keys that validation leaves: that of the fields, of which some may be missing."""
    optional = [name for name in kinds if name not in required]
    if len(optional) > MAX_OPTIONAL:
        raise UnknownShapeError("too many fields may be missing")
    for count in range(len(optional) + 1):
        for missing in itertools.combinations(optional, count):
            yield tuple(name for name in kinds if name not in missing)


def _is_extended(mapping: Mapping[Any, Any], fields: tuple[str, ...], orders: frozenset[tuple[str, ...]]) -> bool:
    """Whether the keys are fields in their order, then other strings."""
    known = tuple(name for name in fields if name in mapping)
    return known in orders and tuple(mapping)[: len(known)] == known and all(type(key) is str for key in mapping)


def samples_of(kinds: Mapping[str, Kind], required: Iterable[str], extra: bool) -> Iterator[dict[str, Any]]:
    """Mappings that fit: the barest, it with each field in turn, then the fullest, and it with extra keys."""
    barest = {name: kind.samples[0] for name, kind in kinds.items() if name in required}
    yield barest
    for name, kind in kinds.items():
        for sample in kind.samples:
            # in the order of the fields, wherever the barest has a gap
            yield {n: sample if n == name else barest[n] for n in kinds if n == name or n in barest}
    fullest = {name: kind.samples[-1] for name, kind in kinds.items()}
    yield fullest
    if extra:
        yield {**fullest, "other": {"k": [1]}, "more": 2}


def _either(tests: Iterable[str]) -> str:
    return "(" + " or ".join(sorted(tests, key=len)) + ")"  # the quickest first


def _all(tests: list[str]) -> str:
    return " and ".join(tests) or "True"


def _names(kinds: Iterable[Kind]) -> dict[str, Any]:
    return {name: value for kind in kinds for name, value in kind.names.items()}


def compile_function(
    kinds: Mapping[str, Kind], head: Iterable[str], result: Iterable[str], *, validates: bool, names: dict[str, Any]
) -> Callable[[Any], Any]:
    """A function that returns None where `state` has not exactly these fields, in any order, each of its kind.

    Args:
        kinds: The fields and their kinds.
        head: The first lines of the source text of `function`; they leave a dictionary in `state`.
        result: The lines that are run where it fits. There `{state}` stands for a new dictionary of the fields in
            their order.
        validates: Whether the values shall also be those that validation leaves as they are.
        names: What these lines call by name.
    """
    fields = {name: f"v{n}" for n, name in enumerate(kinds)}
    templates = {name: kind.validates if validates else kind.dumps for name, kind in kinds.items()}
    tests = [f"len(state) == {len(fields)}"]
    tests += [test.format(v=fields[name]) for name, test in templates.items() if test != "True"]
    built = "{" + ", ".join(f"{name!r}: {v}" for name, v in fields.items()) + "}"
    found = {**_names(kinds.values()), **names}
    compile_into(
        found,
        *head,
        " try:",
        *(f"  {v} = state[{name!r}]" for name, v in fields.items()),
        f"  if {_all(tests)}:",
        *(f"   {line.replace('{state}', built)}" for line in result),
        # A field is missing, here or in a mapping further down; a key is no string; something cannot be packed; a model
        # lacks one of its slots.
        " except (KeyError, TypeError, AttributeError):",
        "  pass",
        " return None",
    )
    function: Callable[[Any], Any] = found["function"]
    return function
