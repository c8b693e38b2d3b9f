"""Catalogues: files of rules, in YAML, in Python, or as pairs of ONNX functions.

They are shipped, lie at a path, or come with an installed package. They are read with the files
that they include, and made into rules. Rules can also be written as a catalogue.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import cache
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq
from ruamel.yaml.scalarstring import LiteralScalarString

from dplcli.catalog.finding import Catalog, CatalogPart, examples_file, find_catalog
from dplcli.catalog.python import (
    check_rules,
    find_function,
    installed_catalogs,
    load_entry_point,
    load_python_catalog,
)
from dplcli.catalog.schema import (
    WRITTEN_OUT,
    CatalogFile,
    ExampleItem,
    ExamplesFile,
    PatternItem,
    RewriteItem,
)
from dplcli.catalog.template import Fragment, ScalarText, labelled, written_out
from dplcli.catalog.yaml import YamlSource, explain_invalid
from dplcli.errors import CatalogError, Mistakes, PatternSyntaxError, did_you_mean, opt
from dplcli.files import exists, resolved
from dplcli.ir import Attribute, Tensor
from dplcli.ir.model import called_function
from dplcli.ir.operators import attribute_of, schema_of
from dplcli.language.conditions import Condition
from dplcli.language.consistency import mistakes_in
from dplcli.language.pattern import absent, is_op, is_value, outputs, wildcard
from dplcli.language.replacement import (
    DraftOutput,
    RewriteRule,
    check_attributes,
    nodewise_of,
    parse_replacement,
)
from dplcli.language.rule import Example, PatternRule
from dplcli.language.text import (
    attribute_names,
    bound_names,
    captures_of,
    check_roots,
    read_pattern,
)
from dplcli.rewrites import find_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from importlib.metadata import EntryPoint

    from dplcli.catalog.schema import FragmentEntry
    from dplcli.catalog.template import RuleEntry
    from dplcli.ir import Function, Node, SchemaLibrary, Value
    from dplcli.language.pattern import CallPattern, DFPattern
    from dplcli.language.replacement import GraphBuilder, Operand, RewriteFunction
    from dplcli.language.rule import ConstantsPolicy, Match, Opsets, Rejection

    AnyEntry: TypeAlias = PatternItem | RewriteItem

    Kind: TypeAlias = Literal["patterns", "rewrites"]

    Where: TypeAlias = tuple[str | int, ...]

    Reader: TypeAlias = Callable[[Path], Sequence[RewriteRule]]

    Made: TypeAlias = tuple[tuple[RuleEntry, PatternRule | RewriteRule], ...]


# Writing rules as a catalogue in YAML, which reads as the same rules.


_UNWRAPPED = 1 << 20
"""A width that no line has."""

NO_COMMENTS: Mapping[str, str] = MappingProxyType({})
"""Nothing to write above any rule."""


def write_catalog(
    rules: Sequence[PatternRule] | Sequence[RewriteRule],
    *,
    doc: str = "",
    comments: Mapping[str, str] = NO_COMMENTS,
    off: Collection[str] = (),
) -> str:
    """Return the text of a catalogue.

    Args:
        rules: At least one rule; all are of one kind and have the same target. Replacements are
            texts.
        doc: What the catalogue is for.
        comments: What to write above rules, by their names; an empty text is none.
        off: The names of rules that are commented out.

    Raises:
        CatalogError: No catalogue can hold them: a bad name, several targets, a check in Python.
    """
    targets = list(dict.fromkeys(rule.target for rule in rules))
    if len(targets) > 1:
        raise CatalogError(f"a catalogue has one target, not {', '.join(targets)}")
    policies = {rule.constants for rule in rules if isinstance(rule, PatternRule)}
    policy = policies.pop() if len(policies) == 1 else "auto"
    catalog: dict[str, Any] = {"dpl": 1}
    if targets[0]:
        catalog["target"] = targets[0]
    if doc:
        catalog["doc"] = doc
    if policy != "auto":
        catalog["constants"] = policy
    kind: Kind = "patterns" if isinstance(rules[0], PatternRule) else "rewrites"
    entries = CommentedSeq(_entry(rule, policy) for rule in rules)
    catalog[kind] = entries
    _check(catalog, kind)
    for place, rule in enumerate(rules):
        if comment := comments.get(rule.name):
            entries.yaml_set_comment_before_after_key(place, before=comment, indent=2)
    writer = YAML()
    writer.width = _UNWRAPPED
    writer.indent(mapping=2, sequence=4, offset=2)
    stream = StringIO()
    writer.dump(catalog, stream)
    return _without(stream.getvalue(), kind, off) if off else stream.getvalue()


def _without(text: str, kind: Kind, off: Collection[str]) -> str:
    """Comment rules out; what is left of a list without others is an empty one."""
    start, lines = "  - name: ", list[str]()
    is_off, names = False, set[str]()
    for line in text.splitlines():
        if line.startswith(start):
            names.add(line.removeprefix(start))
            is_off = line.removeprefix(start) in off
        elif line and not line.startswith("   "):
            is_off = False
        lines.append(f"  # {line[2:]}".rstrip() if is_off else line)
    if all(name in off for name in names):
        lines[lines.index(f"{kind}:")] += " []"
    return "\n".join([*lines, ""])


def _entry(rule: PatternRule | RewriteRule, policy: ConstantsPolicy) -> dict[str, Any]:
    """Return the entry of *rule*, without the keys whose values are the defaults."""
    if rule.check is not None:
        raise CatalogError(f"rule {rule.name!r}: its check is Python code, which YAML cannot hold")
    first, last = rule.opsets
    bounds = [first or 1] if last is None else [first or 1, last]
    before: dict[str, tuple[object, object]] = {
        "where": ([condition.text for condition in rule.where], []),
    }
    if isinstance(rule, PatternRule):
        before["constants"] = (rule.constants, policy)
        before["escape"] = (rule.escape, "refuse")
        before["order"] = (rule.order, "outermost")
        before["attrs"] = (dict(rule.metadata), {})
    else:
        usual = "refuse" if rule.repeats_work else "keep"
        before["replacement"] = (_lines(rule.becomes), "")
        before["escape"] = (rule.escape, usual)
        before["once"] = (rule.once, False)
        before["except"] = ([*rule.excepted], [])
    before["priority"] = (rule.priority, 0)
    after: dict[str, tuple[object, object]] = {
        "opsets": (bounds, [1]),
        "examples": (
            [{"before": _lines(e.before), "after": _lines(e.after)} for e in rule.examples],
            [],
        ),
    }
    optional = before | after
    return {
        "name": rule.name,
        **({"doc": _escaped(rule.doc)} if rule.doc else {}),
        "pattern": _block(_escaped(f"{rule.pattern!r}\n")),
        **{key: _escaped(value) for key, (value, default) in optional.items() if value != default},
    }


def _escaped(data: Any) -> Any:  # noqa: ANN401  # what YAML holds
    """Escape ``${``, which would be read as a reference."""
    if isinstance(data, str):
        written = data.replace("${", "$${")
        return type(data)(written) if isinstance(data, LiteralScalarString) else written
    if isinstance(data, dict):
        return {key: _escaped(item) for key, item in data.items()}
    return [_escaped(item) for item in data] if isinstance(data, list) else data


def _block(text: str) -> str:
    """Let *text* be written line by line, unless it has characters that YAML must quote."""
    return LiteralScalarString(text) if text.replace("\n", "").isprintable() else text


def _lines(text: str) -> str:
    """Let a text of several lines be written line by line."""
    lines = text.strip("\n")
    return _block(f"{lines}\n") if "\n" in lines else lines


def _check(catalog: dict[str, Any], kind: Kind) -> None:
    entry_type = PatternItem if kind == "patterns" else RewriteItem
    try:
        entries = [dict(entry) for entry in catalog[kind]]
        CatalogFile.model_validate(catalog | {kind: entries})
        for entry in entries:
            entry_type.model_validate(entry, context=WRITTEN_OUT)
    except ValidationError as error:
        problem = error.errors()[0]
        key = next(item for item in reversed(problem["loc"]) if isinstance(item, str))
        what = f": {problem['msg'].removeprefix('Value error, ')}"
        if problem["type"] == "string_pattern_mismatch":
            what = " is not a name: letters, digits and _"
        raise CatalogError(f"{key}: {problem['input']!r}{what}") from error


# Examples in a file of their own: ``mine.examples.yaml`` beside ``mine.yaml``.
#
# It is read only to run or count examples, so that many examples do not make a catalogue slow.


def read_examples(catalog: Path, names: Collection[str]) -> dict[str, tuple[Example, ...]]:
    """Return the examples in a catalogue's file of them, by rule; {} if there is no file.

    Args:
        catalog: The catalogue's file.
        names: Names of its rules.

    Raises:
        CatalogError: The file is invalid, or names a rule that the catalogue does not have.
    """
    path = examples_file(catalog)
    if not exists(path.is_file):
        return {}
    source = YamlSource(path, "file of examples")
    data = source.data
    try:
        file = ExamplesFile.model_validate(data)
    except ValidationError as error:
        keys = ("rule", "before", "after", "for_each", "except")
        raise explain_invalid(
            source, error, lambda where: ExamplesFile.model_fields if len(where) == 1 else keys
        ) from error
    by_rule: dict[str, tuple[Example, ...]] = {}
    for number in range(len(file.examples)):
        item = data["examples"][number]
        for rule, example in _written_out(source, number, item, names, catalog.name):
            by_rule[rule] = (*by_rule.get(rule, ()), example)
    return by_rule


def _written_out(
    source: YamlSource,
    number: int,
    item: Any,  # noqa: ANN401  # YAML holds anything
    names: Collection[str],
    catalog: str,
) -> Iterator[tuple[str, Example]]:
    """Yield the examples that one item stands for, each with its rule."""
    for entry in written_out(source, ("examples", number), item, {}):
        rule = entry.data["rule"]
        if rule not in names:
            hint = did_you_mean(rule, names)
            wrong = entry.error(f"{catalog} has no rule {rule!r}", ("rule",), hint)
            raise labelled(wrong, entry.values)
        after = entry.data.get("after", "any")
        origin = entry.line(("before",))
        yield rule, Example(before=entry.data["before"], after=after, origin=origin)


# Making rules of the entries of a catalogue file.


@dataclass(frozen=True)
class RuleMaker:
    """Makes rules.

    Attributes:
        schemas: The standard operators.
        allow_code: Whether entries may name Python functions to import.
    """

    schemas: SchemaLibrary
    allow_code: bool

    def pattern_rule(self, place: RuleEntry, entry: PatternItem, file: CatalogFile) -> PatternRule:
        """Make a rule that outlines.

        Raises:
            CatalogError: Something in the entry is invalid.
        """
        pattern, unused, where = self._matched(place, entry)
        try:
            return PatternRule(
                target=file.target or "",
                constants=entry.constants or file.constants,
                metadata=entry.attrs,
                escape=entry.escape,
                order=entry.order,
                where=self._checked(place, pattern, where),
                **self._common(place, entry, file, pattern, unused),
            )
        except PatternSyntaxError as error:  # conditions were checked before
            name = error.message.partition(":")[0].removeprefix("attrs.")
            raise place.error_in_text(error, ("attrs", name)) from error

    def rewrite_rule(self, place: RuleEntry, entry: RewriteItem, file: CatalogFile) -> RewriteRule:
        """Make a rule that replaces.

        Raises:
            CatalogError: Something in the entry is invalid.
        """
        pattern, unused, where = self._matched(place, entry)
        mistakes = Mistakes()
        with mistakes.gathered():
            where = self._checked(place, pattern, where)
        with mistakes.gathered():
            compared = frozenset().union(*(condition.names for condition in where))
            replacement = self._becoming(place, entry, pattern, compared)
        mistakes.check()
        try:
            return RewriteRule(
                replacement=replacement,
                where=where,
                once=entry.once,
                escape=entry.escape,
                excepted=tuple(entry.except_ or ()),  # type: ignore[arg-type]  # a list by now
                **self._common(place, entry, file, pattern, unused),
            )
        except PatternSyntaxError as error:
            raise place.error_in_text(error, ("replacement",)) from error

    def _common(
        self,
        place: RuleEntry,
        entry: AnyEntry,
        file: CatalogFile,
        pattern: DFPattern,
        unused: tuple[str, ...],
    ) -> dict[str, Any]:
        """Return the arguments that rules of both kinds take."""
        return {
            "name": entry.name,
            "pattern": pattern,
            "doc": entry.doc,
            "origin": place.origin,
            "check": None if entry.check is None else self._import(place, "check", entry.check),
            "examples": tuple(
                Example(
                    before=e.before,
                    after=e.after,
                    origin=place.line(("examples", number, "before")),
                )
                for number, e in enumerate(entry.examples)
            ),
            "locate": cache(lambda part: place.place_in_text(part.line, part.column, ("pattern",))),
            "opsets": _opsets(entry),
            "priority": file.priority if entry.priority is None else entry.priority,
            "unused": unused,
            "values": place.values,
        }

    def _becoming(
        self, place: RuleEntry, entry: RewriteItem, pattern: DFPattern, compared: frozenset[str]
    ) -> RewriteFunction:
        """Return the replacement as a function: parsed, or found by its name."""
        if entry.function is not None:
            return self._function(place, entry, entry.function)
        key = "replacement"
        try:
            replacement = parse_replacement(entry.replacement or "", pattern, self.schemas)
            key = "pattern"
            check_attributes(pattern, replacement.carried | compared)
        except PatternSyntaxError as error:
            raise place.error_in_text(error, (key,)) from error
        return replacement

    def _function(self, place: RuleEntry, entry: RewriteItem, name: str) -> RewriteFunction:
        where = ("function",)
        if ":" in name:
            return self._import(place, "function", name)
        try:
            function = find_transform(name)
        except CatalogError as error:
            raise place.error(f"{place.label}: {error.message}", where, error.advice) from error
        if "pattern" not in entry.model_fields_set and nodewise_of(function) is None:
            raise place.error(f"{place.label}: the key 'pattern' is missing", where)
        return function

    def _matched(
        self, place: RuleEntry, entry: AnyEntry
    ) -> tuple[DFPattern, tuple[str, ...], tuple[Condition, ...]]:
        """Read the pattern and the conditions over its names."""
        mistakes = Mistakes()
        names: frozenset[str] | None = None
        attributes = frozenset[str]()
        captures: dict[str, str] = {}
        with mistakes.gathered():
            try:
                lines = place.statements(("pattern",))
                pattern, unused = read_pattern(
                    entry.pattern if lines is None else lines, self.schemas
                )
                if isinstance(entry, PatternItem) or entry.function is None:
                    check_roots(pattern)
                names, captures = bound_names(pattern), captures_of(pattern)
                attributes = attribute_names(pattern)
            except PatternSyntaxError as error:
                raise place.error_in_text(error, ("pattern",)) from error
        conditions = []
        for number, text in enumerate(entry.where):
            with mistakes.gathered():
                try:
                    condition = Condition(text, captures)
                    if names is not None:
                        condition.check_names(names | attributes)
                except PatternSyntaxError as error:
                    raise place.error_in_text(error, ("where", number)) from error
                conditions.append(condition)
        mistakes.check()
        return pattern, unused, tuple(conditions)

    def _checked(
        self, place: RuleEntry, pattern: DFPattern, conditions: tuple[Condition, ...]
    ) -> tuple[Condition, ...]:
        """Compare *conditions* with the pattern and with each other, and return them."""
        as_written = [place.is_written(("where", number)) for number in range(len(conditions))]
        wrong = mistakes_in(conditions, pattern, self.schemas, as_written)
        mistakes = [place.error_in_text(error, ("where", number)) for number, error in wrong]
        if mistakes:
            raise CatalogError.of(mistakes)
        return conditions

    def _import(self, place: RuleEntry, role: str, reference: str) -> Callable[..., Any]:
        if not self.allow_code:
            raise place.error(
                f"{place.label}: the {role} {reference!r} is Python code, which YAML does "
                "not run by itself",
                (role,),
                f"pass {opt('allow_code')} if you trust it",
            )
        try:
            return find_function(reference, place.source.folder, role)
        except CatalogError as error:
            raise place.error(f"{place.label}: {error.message}", (role,)) from error


def _opsets(entry: AnyEntry) -> Opsets:
    first, last, *_ = [*(entry.opsets or []), None, None]
    return first, last


# Catalogues: files of rules, in YAML or in Python.


E = TypeVar("E", PatternItem, RewriteItem)

_PYTHON = ".py"
_SECTIONS = frozenset({"patterns", "rewrites"})
_MOST_KEPT = 32
NO_READERS: Mapping[str, Reader] = MappingProxyType({})


def read_catalogs(
    names: Iterable[str | PatternRule | RewriteRule],
    schemas: SchemaLibrary,
    *,
    allow_code: bool = False,
    readers: Mapping[str, Reader] = NO_READERS,
    with_examples: bool = False,
) -> Catalog:
    """Read the rules of several catalogues, in the order given.

    Args:
        names: Paths, names of shipped catalogues, or of those that installed packages offer; one
            given twice counts once. A path that ends in ``.py`` is executed. Or rules themselves.
        schemas: The standard operators.
        allow_code: Whether YAML may name Python functions to import (``check``, ``function``).
        readers: By suffix, what else reads catalogues: files that are neither YAML nor Python.
        with_examples: Whether to read the catalogues' files of examples, too.

    Raises:
        CatalogError: A catalogue is missing, malformed, or two rules have the same name; all that
            is wrong is said at once.
    """
    maker = RuleMaker(schemas, allow_code)
    reader = _Reader(maker, readers, with_examples)
    for name in names:
        with reader.mistakes.gathered():
            if isinstance(name, str):
                reader.read_named(name)
            elif reader.catalog.namesake(name) is not name:
                reader.add_all([name])
    reader.mistakes.check()
    return reader.catalog


class _Kept(threading.local):
    """The rules of files read before, by all that they depend on; the latest come last.

    A program that handles many models reads the same catalogues for each. Rules do not change,
    but their conditions have working memory, so each thread has rules of its own.
    """

    def __init__(self) -> None:
        self.rules: dict[tuple[object, ...], Made] = {}


_KEPT = _Kept()


@dataclass
class _Reader:
    """Reads catalogues, each once, and gathers their rules in order."""

    maker: RuleMaker
    readers: Mapping[str, Reader]
    with_examples: bool
    catalog: Catalog = field(default_factory=Catalog)
    offered: set[str] = field(default_factory=set)
    fragments: dict[Path, dict[str, Fragment]] = field(default_factory=dict)
    texts: dict[Path, tuple[str, ...]] = field(default_factory=dict)
    mistakes: Mistakes = field(default_factory=Mistakes)

    def read_named(self, name: str) -> None:
        try:
            path = find_catalog(name)
        except CatalogError:
            point = installed_catalogs().get(name)
            if point is None:
                raise
            self._read_offer(point)
            return
        self.read(path, path.parent)

    def _read_offer(self, point: EntryPoint) -> None:
        """Read what an installed package offers."""
        if point.name in self.offered:
            return
        self.offered.add(point.name)
        offer = load_entry_point(point)
        if isinstance(offer, Path):
            self.read(offer, offer.parent)
            return
        self.add_all(offer)

    def add_all(self, rules: Sequence[PatternRule | RewriteRule]) -> None:
        """Add rules that no text says."""
        check_rules(rules, self.maker.schemas)
        for rule in rules:
            self.catalog.add(rule)

    def read(self, path: Path, root: Path) -> None:
        """Read one file; what it includes must lie below *root*."""
        if resolved(path) in self.catalog.files:
            return
        self.catalog.files.add(resolved(path))
        reader = load_python_catalog if path.suffix == _PYTHON else self.readers.get(path.suffix)
        if reader is None:
            self._read_yaml(path, root)
            return
        self.add_all(reader(path))

    def _read_yaml(self, path: Path, root: Path) -> None:
        source = YamlSource(path)
        data = source.data
        file, broken = _validated(source, data, self.mistakes)
        if file.target is None and (
            data.get("patterns") or not ("rewrites" in data or file.fragments)
        ):
            raise source.error("the key 'target' is missing", ())
        fragments = self.fragments[resolved(path)] = {}
        texts = [source.label, source.text]
        includes = []
        for index, name in enumerate(file.include):
            included = self._include(source, path, root, name, index)
            includes.append(included)
            fragments |= self.fragments.get(included, {})
            texts += self.texts.get(included, ())
        self.texts[resolved(path)] = tuple(texts)
        _add_fragments(source, file.fragments, fragments)
        pairs: Made = ()
        with self.mistakes.gathered():
            pairs = self._made(_Writer(source, data, fragments, broken), file, tuple(texts))
        if self.mistakes.found:
            return  # the rules of other files are read, to find what is wrong with them
        rules = tuple(rule for _, rule in pairs)
        self.catalog.parts[resolved(path)] = CatalogPart(source.text, tuple(includes), rules)
        names = {rule.name for rule in rules}
        examples = read_examples(path, names) if self.with_examples else {}
        for place, rule in pairs:
            more = examples.get(rule.name, ())
            with self.mistakes.gathered():
                self._add(place, replace(rule, examples=rule.examples + more) if more else rule)

    def _made(self, writer: _Writer, file: CatalogFile, texts: tuple[str, ...]) -> Made:
        """Return the rules of a file; the same *texts* give the rules made of them before.

        Rules that may import code are made anew, because the code may have changed.
        """
        if self.maker.allow_code:
            return self._rules(writer, file)
        key = (self.maker.schemas, *texts)
        pairs = _KEPT.rules.pop(key, None) or self._rules(writer, file)
        if len(_KEPT.rules) >= _MOST_KEPT:
            del _KEPT.rules[next(iter(_KEPT.rules))]
        _KEPT.rules[key] = pairs
        return pairs

    def _rules(self, writer: _Writer, file: CatalogFile) -> Made:
        """Make the rules of a file."""
        pairs: list[tuple[RuleEntry, PatternRule | RewriteRule]] = []
        mistakes = Mistakes()
        for index, item in writer.numbered("patterns", file.patterns):
            with mistakes.gathered():
                for place, entry in writer.entries(("patterns", index), item, PatternItem):
                    with mistakes.gathered():
                        rule = self.maker.pattern_rule(place, entry, file)
                        pairs.append((place, rule))
        for index, other in writer.numbered("rewrites", file.rewrites):
            with mistakes.gathered():
                for place, new in writer.entries(("rewrites", index), other, RewriteItem):
                    with mistakes.gathered():
                        pairs.append((place, self.maker.rewrite_rule(place, new, file)))
        mistakes.check()
        return tuple(pairs)

    def _include(self, source: YamlSource, path: Path, root: Path, name: str, index: int) -> Path:
        where = ("include", index)
        included = path.parent / name
        if included.suffix == _PYTHON:
            hint = "name it on the command line instead"
            raise source.error(f"{name!r} is Python, which YAML cannot run", where, hint)
        try:
            is_below = resolved(included).is_relative_to(resolved(root))
        except (OSError, RuntimeError, ValueError):
            is_below = False
        if not is_below:
            hint = f"what a catalogue includes lies in its own folder, {resolved(root).name}"
            raise source.error(f"{name!r} is outside the catalogue's folder", where, hint)
        if not exists(included.is_file):
            raise source.error(f"there is no file {name!r} to include", where)
        self.read(included, root)
        return resolved(included)

    def _add(self, place: RuleEntry, rule: PatternRule | RewriteRule) -> None:
        other = self.catalog.namesake(rule)
        if other is not None:
            message = f"the rule {rule.qualified_name!r} is defined already, at {other.origin}"
            raise labelled(place.error(message, ("name",)), place.values)
        self.catalog.add(rule)


def _validated(
    source: YamlSource,
    data: Any,  # noqa: ANN401  # YAML holds anything
    mistakes: Mistakes,
) -> tuple[CatalogFile, set[Where]]:
    """Return the file without its malformed items, and where these stand."""
    try:
        return CatalogFile.model_validate(data), set()
    except ValidationError as error:
        wrong = explain_invalid(source, error, _keys_at)
        broken = {tuple(problem["loc"][:2]) for problem in error.errors()}
    kept = dict(data)
    for key in _SECTIONS & data.keys():
        if isinstance(data[key], list):
            kept[key] = [item for n, item in enumerate(data[key]) if (key, n) not in broken]
    try:
        file = CatalogFile.model_validate(kept)
    except ValidationError:
        raise wrong from None
    mistakes.found.append(wrong)
    return file, broken


def _keys_at(where: Where) -> Iterable[str]:
    """Return the keys that may stand where the last key of *where* stands."""
    if len(where) == 1:
        return CatalogFile.model_fields
    if "examples" in where:
        return ExampleItem.model_fields
    entry = RewriteItem if where[0] == "rewrites" else PatternItem
    return [field.alias or name for name, field in entry.model_fields.items()]


def _add_fragments(
    source: YamlSource, own: Mapping[str, str | FragmentEntry], fragments: dict[str, Fragment]
) -> None:
    """Add the fragments of a file to those of the files that it includes."""
    for name, entry in own.items():
        where: Where = ("fragments", name)
        if name in fragments:
            other = fragments[name].pattern.source.label
            raise source.error(f"the fragment {name!r} is defined already, in {other}", where)
        if isinstance(entry, str):
            fragments[name] = Fragment(name, ScalarText(entry, source, where))
            continue
        conditions = (
            ScalarText(text, source, (*where, "where", number))
            for number, text in enumerate(entry.where)
        )
        pattern = ScalarText(entry.pattern, source, (*where, "pattern"))
        fragments[name] = Fragment(name, pattern, tuple(conditions))


@dataclass(frozen=True)
class _Writer:
    """Writes the items of a file out."""

    source: YamlSource
    data: Any
    fragments: Mapping[str, Fragment]
    broken: Collection[Where] = ()

    def numbered(self, section: str, items: Iterable[E]) -> Iterator[tuple[int, E]]:
        """Yield the well-formed *items* of a section with their numbers in the file."""
        numbers = range(len(self.data.get(section, ())))
        return zip([n for n in numbers if (section, n) not in self.broken], items, strict=True)

    def entries(self, at: Where, item: E, kind: type[E]) -> Iterator[tuple[RuleEntry, E]]:
        """Yield the entries that *item* stands for, each with the positions of its texts."""
        data = self.data[at[0]][at[1]]
        if isinstance(data.get("where"), str):
            data = {**data, "where": [data["where"]]}
        for entry in written_out(self.source, at, data, self.fragments):
            if not entry.texts:
                yield entry, item
                continue
            try:
                yield entry, kind.model_validate(entry.data, context=WRITTEN_OUT)
            except ValidationError as error:
                wrong = explain_invalid(entry, error, lambda _: ())
                raise labelled(wrong, entry.values) from error


# Rewrite rules from pairs of ONNX functions: ``gelu_pattern`` becomes ``gelu_replacement``.
#
# After TVM's ``PatternMatchingRewriter.from_module`` (``python/tvm/relax/dpl/rewrite.py``), where
# two functions of a module are pattern and replacement; here attributes and constants are
# compared, too.
#
# The inputs of the pattern function match any values, those of the replacement stand for them in
# the same order. A constant matches a constant of its element type, shape and data. Attributes
# of a pattern's node, stated or by default, must be those of the matched node; an attribute
# that refers to one of the function (``alpha = @a``) matches any value, which the replacement
# may use under the same name.
#
# The model also gets the other functions that a replacement calls, each once, when it is first
# needed. A function gets another name if the model has a different function of that name.


PATTERN, REPLACEMENT = "_pattern", "_replacement"
"""How the names of the two functions of a rule end."""


def rules_of_functions(functions: Iterable[Function], label: str) -> list[RewriteRule]:
    """Make a rule of each pair of functions, in the order of the patterns.

    Args:
        functions: The functions of a model; functions with other names are ignored.
        label: Where they were written, for messages.

    Raises:
        CatalogError: One of a pair is missing, the two do not fit, or a function holds something
            that no rule can.
    """
    by_name = {function.name: function for function in functions}
    for name in by_name:
        stem = name.removesuffix(REPLACEMENT)
        if stem != name and stem + PATTERN not in by_name:
            raise CatalogError(f"{label}: there is no function {stem + PATTERN!r} beside {name!r}")
    rules = [
        _rule(name.removesuffix(PATTERN), function, by_name, label)
        for name, function in by_name.items()
        if name.endswith(PATTERN)
    ]
    if not rules:
        raise CatalogError(
            f"{label}: has no pair of functions", hint=f"name them x{PATTERN} and x{REPLACEMENT}"
        )
    return rules


def _rule(
    name: str, before: Function, functions: Mapping[str, Function], label: str
) -> RewriteRule:
    missing = name + REPLACEMENT
    after = functions.get(missing)
    if after is None:
        raise CatalogError(f"{label}: there is no function {missing!r} beside {before.name!r}")
    where = f"{label}: rule {name!r}"
    for kind in ("inputs", "outputs"):
        wanted, given = len(getattr(before.body, kind)), len(getattr(after.body, kind))
        if wanted != given:
            raise CatalogError(f"{where}: the pattern has {wanted} {kind}, the replacement {given}")
    reader = _PatternReader(before, where)
    pattern = reader.read()
    unbound = sorted(set(_references(after)) - set(_references(before)))
    if unbound:
        raise CatalogError(f"{where}: the pattern does not bind the attribute {unbound[0]!r}")
    _check_callees(after, where)
    return RewriteRule(
        name,
        pattern,
        FunctionReplacement(before, after, reader.calls),
        origin=label,
        doc=f"{before.name} becomes {after.name}.",
    )


def _check_callees(function: Function, where: str) -> None:
    """Refuse calls of functions that the model cannot get, and recursion."""
    pending: list[tuple[Function, tuple[Function, ...]]] = [(function, (function,))]
    while pending:
        current, callers = pending.pop()
        for node in current.body:
            _refuse_bodies(node, where)
            callee = called_function(node)
            if callee is None:
                continue
            label = f"{callee.domain}::{callee.name}"
            if callee in callers:
                raise CatalogError(f"{where}: {label} calls itself")
            if not callee.domain or callee.domain.startswith("ai.onnx"):
                raise CatalogError(f"{where}: {label} is in the standard's own domain")
            undeclared = sorted(set(_references(callee)) - set(callee.attributes))
            if undeclared:
                raise CatalogError(
                    f"{where}: the attribute {undeclared[0]!r} of {label} has a default"
                )
            pending.append((callee, (*callers, callee)))


def _references(function: Function) -> list[str]:
    return [a.ref for node in function.body for a in node.attributes.values() if a.ref]


def _refuse_bodies(node: Node, where: str) -> None:
    if node.subgraphs:
        raise CatalogError(f"{where}: {node.op_type} has a body, which no rule can hold")


class _PatternReader:
    """Turns the body of a function into a pattern."""

    def __init__(self, function: Function, where: str) -> None:
        self.body = function.body
        self.where = where
        self.calls: dict[Node, CallPattern] = {}
        self.made: dict[Value, DFPattern] = {
            value: wildcard(value.name) for value in function.body.inputs
        }

    def read(self) -> DFPattern:
        for node in self.body:
            _refuse_bodies(node, self.where)
            self._read_node(node)
        parts = [self.made[value] for value in self.body.outputs]
        root = self.body.outputs[0].producer if self.body.outputs else None
        if root is None or root not in self.calls:
            raise CatalogError(f"{self.where}: the pattern's output is made by no node")
        return parts[0] if len(parts) == 1 else outputs(*parts)

    def _read_node(self, node: Node) -> None:
        if node.op_type == "Constant" and not node.domain:
            value = node.outputs[0]
            tensor = None if value is None else value.constant
            if value is None or tensor is None:
                raise CatalogError(f"{self.where}: a constant of the pattern has no data")
            self.made[value] = is_value(tensor.numpy())
            return
        args = [absent() if value is None else self.made[value] for value in node.inputs]
        call = is_op(node.op_type, node.domain)(*args)
        self.calls[node] = call
        for index, output in enumerate(node.outputs):
            if output is not None:
                self.made[output] = call if index == 0 else call[index]


@dataclass(frozen=True)
class FunctionReplacement:
    """The replacement of a rule that was made of two ONNX functions.

    Attributes:
        before: The pattern.
        after: The replacement.
        calls: The part of the pattern for each node of *before*.
    """

    before: Function
    after: Function
    calls: Mapping[Node, CallPattern]

    @property
    def __name__(self) -> str:
        """The name of the replacement."""
        return self.after.name

    def __call__(self, match: Match, build: GraphBuilder) -> Sequence[Operand] | Rejection | None:
        """Build the replacement's nodes, if the attributes are those of the pattern."""
        bound: dict[str, Attribute] = {}
        for node, call in self.calls.items():
            matched = match.node(call)
            reason = "" if matched is None else _difference(node, matched, bound)
            if reason:
                return match.reject(reason, at=matched)
        operands: dict[Value, Operand] = {
            value: match.bindings[source.name]
            for value, source in zip(self.after.body.inputs, self.before.body.inputs, strict=True)
            if source.name in match.bindings
        }
        for node in self.after.body:
            reason = _build(node, operands, bound, build)
            if reason:
                return match.reject(reason)
        return [operands[value] for value in self.after.body.outputs]


def _difference(node: Node, matched: Node, bound: dict[str, Attribute]) -> str:
    """Say how the attributes of *matched* differ from those of the pattern's *node*, or ""."""
    ours, theirs = schema_of(node), schema_of(matched)
    if ours is not None and theirs is not None and ours.since != theirs.since:
        return f"the rule means {node.op_type}-{ours.since}, the model {theirs.since}"
    for name in dict.fromkeys([*node.attributes, *matched.attributes]):
        wanted = node.attributes.get(name) or attribute_of(node, name)
        given = attribute_of(matched, name)
        if given is not None and given.ref:
            return f"{name} of {matched.label!r} is given by the caller of a function"
        if wanted is not None and wanted.ref:
            other = bound.get(wanted.ref)
            if given is None or (other is not None and not _equal(other, given)):
                return f"{name} of {matched.label!r} is not stated, or not what it is elsewhere"
            bound[wanted.ref] = given
        elif wanted is None or given is None or not _equal(wanted, given):
            return f"{name} of {matched.label!r} is {_as_text(given)}, not {_as_text(wanted)}"
    return ""


def _equal(one: Attribute, other: Attribute) -> bool:
    if isinstance(one.value, Tensor) and isinstance(other.value, Tensor):
        a, b = one.value, other.value
        same_type = (a.dtype, a.shape) == (b.dtype, b.shape)
        return same_type and a.numpy().tobytes() == b.numpy().tobytes()
    return one == other


def _as_text(attribute: Attribute | None) -> str:
    return "left out" if attribute is None else repr(attribute.value)


def _build(
    node: Node, operands: dict[Value, Operand], bound: Mapping[str, Attribute], build: GraphBuilder
) -> str:
    """Build one node of the replacement; return why that is impossible, or ""."""
    output = node.outputs[0]
    tensor = None if output is None else output.constant
    if output is not None and tensor is not None:
        operands[output] = build.constant(tensor)
        return ""
    missing = [value.name for value in node.inputs if value is not None and value not in operands]
    if missing:
        return f"{missing[0]!r} took no part in the match"
    attributes = {
        name: bound[attribute.ref] if attribute.ref else attribute
        for name, attribute in node.attributes.items()
    }
    inputs = [None if value is None else operands[value] for value in node.inputs]
    callee = called_function(node)
    if callee is None:
        drafted = build.node(node.op_type, node.domain, inputs, attributes, len(node.outputs))
    else:
        drafted = build.call(callee, inputs, attributes)
    for index, value in enumerate(node.outputs):
        if value is not None:
            operands[value] = DraftOutput(drafted, index)
    return ""
