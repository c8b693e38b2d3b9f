"""The rules that the entries of a catalogue file describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from dplcli.dpl.code import find_function
from dplcli.dpl.conditions import Condition
from dplcli.dpl.lost_attributes import check_attributes
from dplcli.dpl.nodewise import is_nodewise
from dplcli.dpl.replacement import Replacement, parse_replacement
from dplcli.dpl.rule import Example, PatternRule, RewriteRule
from dplcli.dpl.scoping import attribute_names, bound_names
from dplcli.dpl.text import character_column, read_pattern
from dplcli.dpl.transforms import find_transform
from dplcli.errors import CatalogError, PatternSyntaxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dplcli.dpl.catalog_entries import Entry
    from dplcli.dpl.catalog_schema import ExampleEntry, PatternEntry, RewriteEntry
    from dplcli.dpl.draft import RewriteFunction
    from dplcli.dpl.pattern import DFPattern, Place
    from dplcli.dpl.rule import Check, ConstantsPolicy, Locate, Opsets
    from dplcli.ir import SchemaLibrary

    Where: TypeAlias = tuple[str | int, ...]
    AnyEntry: TypeAlias = PatternEntry | RewriteEntry


class RuleMaker:
    """Makes rules.

    Args:
        schemas: The standard operators.
        allow_code: Whether entries may name Python functions to import.
    """

    def __init__(self, schemas: SchemaLibrary, *, allow_code: bool) -> None:
        """Make rules over the operators of *schemas*."""
        self.schemas = schemas
        self.allow_code = allow_code

    def pattern_rule(
        self, place: Entry, entry: PatternEntry, target: str, constants: ConstantsPolicy
    ) -> PatternRule:
        """Make a rule that outlines; *target* and *constants* are what its file says for all.

        Raises:
            CatalogError: Something in it makes no sense.
        """
        pattern, unused = self._pattern(place, entry)
        return PatternRule(
            target=target,
            name=entry.name,
            pattern=pattern,
            where=_conditions(place, entry, pattern),
            constants=entry.constants or constants,
            doc=entry.doc,
            metadata=entry.attrs,
            origin=place.origin,
            check=self._check(place, entry),
            escape=entry.escape,
            order=entry.order,
            examples=examples_of(place, entry.examples),
            locate=_locator(place, entry.pattern),
            opsets=_opsets(entry),
            unused=unused,
            values=place.values,
        )

    def rewrite_rule(self, place: Entry, entry: RewriteEntry) -> RewriteRule:
        """Make a rule that replaces.

        Raises:
            CatalogError: Something in it makes no sense.
        """
        pattern, unused = self._pattern(place, entry)
        replacement = self._becoming(place, entry, pattern)
        conditions = _conditions(place, entry, pattern)
        try:
            return RewriteRule(
                name=entry.name,
                pattern=pattern,
                replacement=replacement,
                where=conditions,
                doc=entry.doc,
                origin=place.origin,
                check=self._check(place, entry),
                examples=examples_of(place, entry.examples),
                locate=_locator(place, entry.pattern),
                opsets=_opsets(entry),
                unused=unused,
                once=entry.once,
                values=place.values,
            )
        except PatternSyntaxError as error:
            raise place.error_in_text(error, ("replacement",)) from error

    def _becoming(
        self, place: Entry, entry: RewriteEntry, pattern: DFPattern
    ) -> Replacement | RewriteFunction:
        """Read the replacement, or find the function."""
        if entry.function is not None:
            return self._function(place, entry, entry.function)
        replacement = self._replacement(place, entry, pattern)
        try:
            check_attributes(pattern, replacement.carried, self.schemas)
        except PatternSyntaxError as error:
            raise place.error_in_text(error, ("pattern",)) from error
        return replacement

    def _function(self, place: Entry, entry: RewriteEntry, name: str) -> RewriteFunction:
        where = ("function",)
        if ":" in name:
            return self._import(place, "function", name)
        try:
            function = find_transform(name)
        except CatalogError as error:
            raise place.error(f"{place.label}: {error.message}", where, error.hint) from error
        if "pattern" not in entry.model_fields_set and not is_nodewise(function):
            raise place.error(f"{place.label}: the key 'pattern' is missing", where)
        return function

    def _pattern(self, place: Entry, entry: AnyEntry) -> tuple[DFPattern, tuple[str, ...]]:
        try:
            return read_pattern(entry.pattern, self.schemas)
        except PatternSyntaxError as error:
            raise place.error_in_text(error, ("pattern",)) from error

    def _replacement(self, place: Entry, entry: RewriteEntry, pattern: DFPattern) -> Replacement:
        names = bound_names(pattern), attribute_names(pattern)
        try:
            return parse_replacement(entry.replacement or "", *names, self.schemas)
        except PatternSyntaxError as error:
            raise place.error_in_text(error, ("replacement",)) from error

    def _check(self, place: Entry, entry: AnyEntry) -> Check | None:
        return None if entry.check is None else self._import(place, "check", entry.check)

    def _import(self, place: Entry, role: str, reference: str) -> Callable[..., Any]:
        if not self.allow_code:
            raise place.error(
                f"{place.label}: the {role} {reference!r} is Python code, which YAML does "
                "not run by itself",
                (role,),
                "pass --allow-code if you trust it",
            )
        try:
            return find_function(reference, place.source.folder, role)
        except CatalogError as error:
            raise place.error(f"{place.label}: {error.message}", (role,)) from error


def examples_of(place: Entry, entries: Iterable[ExampleEntry]) -> tuple[Example, ...]:
    """Make examples."""
    return tuple(
        Example(
            before=entry.before,
            after=entry.after,
            origin=place.line(("examples", number, "before")),
        )
        for number, entry in enumerate(entries)
    )


def _conditions(place: Entry, entry: AnyEntry, pattern: DFPattern) -> tuple[Condition, ...]:
    names = bound_names(pattern)
    conditions = []
    for number, text in enumerate(entry.where):
        try:
            condition = Condition(text)
            condition.check_names(names)
        except PatternSyntaxError as error:
            raise place.error_in_text(error, ("where", number)) from error
        conditions.append(condition)
    return tuple(conditions)


def _locator(entry: Entry, text: str) -> Locate:
    def locate(place: Place) -> str:
        column = character_column(text, place.line, place.column)
        return entry.place_in_text(place.line, column, ("pattern",))

    return locate


def _opsets(entry: AnyEntry) -> Opsets:
    if entry.opsets is None:
        return (None, None)
    return (entry.opsets[0], entry.opsets[1] if len(entry.opsets) > 1 else None)
