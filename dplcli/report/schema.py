"""The JSON Schema of every document, made from the types of the outcomes: ``dpl schema`` prints it.

An object is closed: a key that its class does not have is a mistake, and the tests hold every
document that they write against it.
"""

from __future__ import annotations

import collections.abc
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, Union, get_args, get_origin, get_type_hints

from dplcli.catalog import lint
from dplcli.catalog.plan import REPRODUCER_SCHEMA, Reproducer
from dplcli.diff import comparison
from dplcli.docstrings import attributes, docstring
from dplcli.ir import Attribute, Value
from dplcli.keys import keys_of, schema_name
from dplcli.language import explain, rule
from dplcli.language.pattern import DFPattern
from dplcli.language.rule import Rule
from dplcli.outcomes.comparing import (
    AccuracyOutcome,
    BisectOutcome,
    DiffOutcome,
    ModelsOutcome,
    Reproduced,
    VerifyOutcome,
)
from dplcli.outcomes.inspecting import InspectOutcome, NodesOutcome
from dplcli.outcomes.matching import ExplainOutcome, MatchOutcome
from dplcli.outcomes.partitioning import PartitionOutcome, RepeatOutcome
from dplcli.outcomes.rewriting import RewriteOutcome, TraceOutcome
from dplcli.outcomes.rules import LearnOutcome, RewritesOutcome
from dplcli.outcomes.running import BenchOutcome, KernelsOutcome, RunOutcome
from dplcli.outcomes.written import ExtractOutcome, InlineOutcome
from dplcli.passes import inline, learn_pattern, merge, nearest, partition, repeat, rewrite, select
from dplcli.report.inspect import Doctor
from dplcli.report.many import Answers
from dplcli.report.patterns import CatalogList, ProblemList, RuleList, TrialList
from dplcli.report.view import Viewed
from dplcli.targets.contract import Contract
from dplcli.verify import accuracy, layers, values, verdict

Json = dict[str, Any]

_PLAIN: dict[object, Json] = {
    NoneType: {"type": "null"},
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]},
}
_NAMED = (Value, Rule, Path, DFPattern)
"""What a name or a text stands for."""


class _Writer:
    """Makes schemas of types; those of classes go into ``$defs``."""

    def __init__(self) -> None:
        self.defs: dict[str, Json] = {}

    def schema(self, hint: Any) -> Json:  # noqa: ANN401, PLR0911  # any type; a return for each kind
        """Return the schema of what a type allows."""
        kind, args = get_origin(hint) or hint, get_args(hint)
        if kind in _PLAIN:
            return _PLAIN[kind]
        if kind is Literal:
            return {"enum": list(args)}
        if kind in {Union, UnionType}:
            choices = [self.schema(each) for each in args]
            return {"anyOf": [each for n, each in enumerate(choices) if each not in choices[:n]]}
        if not isinstance(kind, type) or kind in {Any, object} or issubclass(kind, Attribute):
            return {}
        if issubclass(kind, _NAMED):
            return {"type": "string"}
        if issubclass(kind, Mapping):
            return {"type": "object", "additionalProperties": self.schema(args[1])}
        if keys_of(kind):
            name = kind.__name__
            if name not in self.defs:
                self.defs[name] = {}
                self.defs[name] = self.object(kind)
            return {"$ref": f"#/$defs/{name}"}
        of = tuple(each for each in args if each is not Ellipsis)
        return {"type": "array", "items": self.schema(Union[of])}  # noqa: UP007  # as many

    def object(self, cls: type) -> Json:
        """Return the schema of the object that is made of a class, by its keys."""
        found: Json = {"type": "object", "properties": {}, "required": []}
        found["description"] = summary(cls)
        if name := schema_name(cls):
            _add(found, "schema", {"const": name}, is_optional=False)
        for place, path, is_optional in keys_of(cls):
            if not path:
                found["properties"].pop(place[0], None)
                found["required"] = [key for key in found["required"] if key != place[0]]
                continue
            kinds, said = [cls], ""
            for step in path:
                kinds, said = _after(kinds, step)
            inner = found
            for key in place[:-1]:
                inner = _add(inner, key, {"type": "object"}, is_optional=False)
                inner.setdefault("properties", {})
                inner.setdefault("required", [])
                inner["additionalProperties"] = False
            if place[-1] != "*":
                about = {"description": said} if said else {}
                part = self.schema(Union[tuple(kinds)])  # noqa: UP007  # as many as there are
                _add(inner, place[-1], part | about, is_optional=is_optional)
                continue
            parts = [{} if kind is NoneType else self.object(kind) for kind in kinds]
            for part in parts:
                for key, of in part.get("properties", {}).items():
                    is_everywhere = all(key in other.get("required", ()) for other in parts)
                    _add(inner, key, of, is_optional=not is_everywhere)
        found["additionalProperties"] = False
        return found


def _add(schema: Json, key: str, part: Json, *, is_optional: bool) -> Json:
    """Add a key to the schema of an object; return its schema."""
    if not is_optional and key not in schema["required"]:
        schema["required"].append(key)
    added: Json = schema["properties"].setdefault(key, part)
    return added


def _after(kinds: Iterable[Any], step: str) -> tuple[list[Any], str]:
    """Return the types of what a step leads to from values of some types, and what it is."""
    found: list[Any] = []
    said = ""
    for kind in kinds:
        origin, args = get_origin(kind) or kind, get_args(kind)
        if kind is NoneType:
            more: list[Any] = [kind]
        elif step == "len":
            more = [int]
        elif step.isdigit():
            more = [args[0] if Ellipsis in args else args[int(step)]]
        elif issubclass(origin, Collection) and args:
            inner, said = _after(_choices(args[0]), step)
            more = [list[Union[tuple(inner)]]]  # type: ignore[misc]  # noqa: UP007  # as many
        else:
            hint, said = _member(kind, step)
            more = _choices(hint)
        found += [each for each in more if each not in found]
    return found, said


def _choices(hint: Any) -> list[Any]:  # noqa: ANN401  # any type
    """Return the types that a union allows."""
    return list(get_args(hint)) if get_origin(hint) in {Union, UnionType} else [hint]


def _member(cls: type, name: str) -> tuple[Any, str]:
    """Return the type of an attribute or a property, and what the class says of it."""
    for base in cls.__mro__:
        member = vars(base).get(name)
        function = getattr(member, "fget", None) or getattr(member, "func", None)
        if isinstance(member, (property, cached_property)) and function is not None:
            hint = _resolved(function.__annotations__["return"], base.__module__)
            return hint, _sentence(docstring(function))
        if name in vars(base).get("__annotations__", {}):
            text = vars(base)["__annotations__"][name]
            return _resolved(text, base.__module__), _sentence(attributes(base).get(name, ""))
    raise AttributeError(f"{cls.__name__} has no {name}")


def _resolved(annotation: Any, module: str) -> Any:  # noqa: ANN401  # any type
    """Return the type that an annotation means, without what it says of classes and changes."""
    holder = type("_Holder", (), {"__annotations__": {"it": annotation}})
    hint = get_type_hints(holder, _names(), vars(sys.modules[module]))["it"]
    while get_origin(hint) in {ClassVar, Final}:
        (hint,) = get_args(hint)
    return hint


def _home(found: object) -> str:
    return found.__module__ if isinstance(found, type) else ""


@cache
def _names() -> dict[str, object]:
    """Return what annotations may name though their module does not load it.

    A class has a name of its own in all of dpl.
    """
    found: dict[str, object] = {**vars(collections.abc), "Path": Path}
    ours = [each for name, each in sys.modules.items() if name.startswith("dplcli.")]
    for module in ours:
        mine = vars(module).items()
        found |= {name: it for name, it in mine if _home(it) == module.__name__}
    return found


_NAMED_THERE = (
    *(
        lint,
        comparison,
        explain,
        rule,
        inline,
        learn_pattern,
        merge,
        nearest,
        partition,
        repeat,
        rewrite,
        select,
    ),
    *(accuracy, layers, values, verdict),
)
"""Modules whose classes are parts of outcomes, and which nobody else may have loaded yet."""


def summary(cls: type) -> str:
    """Say in one line what a class is."""
    return _sentence(docstring(cls))


def _sentence(text: str) -> str:
    """Return the first paragraph of a docstring, without marks."""
    first = " ".join(text.strip().partition("\n\n")[0].split())
    return re.sub(r":\w+:`~?([^`]*)`|`+([^`]*)`+", r"\1\2", first)


_WRITTEN: tuple[type, ...] = (
    *(MatchOutcome, ExplainOutcome, PartitionOutcome),
    *(RepeatOutcome, RewriteOutcome, TraceOutcome),
    *(InlineOutcome, ExtractOutcome, VerifyOutcome),
    *(DiffOutcome, BisectOutcome, ModelsOutcome, Reproduced),
    *(Reproducer, LearnOutcome, RewritesOutcome, InspectOutcome),
    *(NodesOutcome, Contract, RunOutcome),
    *(AccuracyOutcome, BenchOutcome),
    *(KernelsOutcome, Viewed, Answers, CatalogList, RuleList, ProblemList, TrialList),
    Doctor,
)


def _named(cls: type) -> str:
    name = schema_name(cls) or REPRODUCER_SCHEMA
    return name.removeprefix("dpl.").partition("/")[0]


DOCUMENTS = {
    _named(cls): [one for one in _WRITTEN if _named(one) == _named(cls)] for cls in _WRITTEN
}
"""What is written under the names of documents, without ``dpl.`` and the version."""


_DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def json_schema(classes: Collection[type]) -> Json:
    """Return the JSON Schema of a document that is one of some classes, as draft 2020-12."""
    if Reproducer in classes:
        return {**_DIALECT, **Reproducer.model_json_schema()}
    writer = _Writer()
    version = {"dpl_version": {"type": "string", "description": "The version that wrote it."}}
    choices = []
    for cls in classes:
        schema = writer.object(cls)
        schema["properties"] = version | schema["properties"]
        schema["required"].insert(1, "dpl_version")
        choices.append(schema)
    whole = choices[0] if len(choices) == 1 else {"anyOf": choices}
    return {**_DIALECT, **whole, "$defs": writer.defs}
