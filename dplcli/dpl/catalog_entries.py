"""The entries of a catalogue file, written out: one for each rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dplcli.dpl.expander import Expander, Fragment
from dplcli.dpl.for_each import EXCEPT, FOR_EACH, WHEN, Selector, combinations, shown, value_of
from dplcli.dpl.template_text import REFERENCE, Expanded, Written
from dplcli.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dplcli.dpl.for_each import Combination
    from dplcli.dpl.source import Source
    from dplcli.errors import PatternSyntaxError

    Where: TypeAlias = tuple[str | int, ...]

_OWN_KEYS = frozenset({FOR_EACH, EXCEPT})


class Entry(NamedTuple):
    """What one rule's entry says, all references replaced, and where it says so.

    Attributes:
        source: The file.
        at: Where in it the entry stands.
        data: What it says.
        values: The value of each variable that it was written out for.
        texts: By place in *data*, the texts that references were replaced in.
    """

    source: Source
    at: Where
    data: Mapping[str, Any]
    values: Mapping[str, str]
    texts: Mapping[Where, Expanded]

    @property
    def label(self) -> str:
        """Its name, and what it was written out for."""
        return f"rule {self.data['name']!r}" + (f" ({shown(self.values)})" if self.values else "")

    @property
    def origin(self) -> str:
        """File and line of its name."""
        return self.line(("name",))

    def line(self, where: Where) -> str:
        """Name the file and line of the item at *where* in the entry."""
        text = self.texts.get(where)
        base = Written("", self.source, (*self.at, *where)) if text is None else text.base
        return f"{base.source.label}:{base.source.line(base.where)}"

    def error(self, message: str, where: Where, hint: str | None = None) -> CatalogError:
        """Point at the item at *where* in the entry."""
        text = self.texts.get(where)
        if text is None:
            return self.source.error(message, (*self.at, *where), hint)
        return text.base.source.error(message, text.base.where, hint)

    def error_in_text(self, error: PatternSyntaxError, where: Where) -> CatalogError:
        """Point into the text at *where*, for what is wrong inside it."""
        source, line, column = self._position(error.line, error.column, where)
        return source.error_at(f"{self.label}: {error.message}", line, column, error.hint)

    def place_in_text(self, line: int, column: int, where: Where) -> str:
        """Name a place inside the text at *where*: ``rules.yaml:12:9``."""
        source, found_line, found_column = self._position(line, column, where)
        return f"{source.label}:{found_line + 1}:{found_column + 1}"

    def _position(self, line: int, column: int, where: Where) -> tuple[Source, int, int]:
        text = self.texts.get(where)
        if text is not None:
            return text.position(line, column)
        return self.source, *self.source.position_in_text(line, column, (*self.at, *where))


def written_out(
    source: Source, at: Where, data: Mapping[str, Any], fragments: Mapping[str, Fragment]
) -> Iterator[Entry]:
    """Yield the entries that one item of ``patterns``, ``rewrites`` or ``examples`` stands for.

    Args:
        source: The file.
        at: Where in it the item stands.
        data: What it says; the keys were checked.
        fragments: The fragments that can be seen.

    Raises:
        CatalogError: A reference means nothing, a variable is not used.
    """
    if not _is_template(data):
        yield Entry(source, at, data, {}, {})
        return
    every = combinations(source, at, data)
    for name in every[0]:
        if name in fragments:
            raise source.error(f"there is a fragment {name!r}, too", (*at, FOR_EACH, name))
    used: set[str] = set()
    entries = []
    selectors = _selectors(source, (*at, "examples"), data, every)
    for combination in every:
        maker = _Maker(source, at, Expander(combination, fragments, used), selectors)
        entries.append(maker.entry(data, combination))
    _check_used(source, at, every[0], used)
    _check_distinct(entries)
    yield from entries


def labelled(error: CatalogError, values: Mapping[str, str]) -> CatalogError:
    """Say which combination an error is about, if there are several."""
    if not values:
        return error
    first, *rest = error.message.split("\n")
    return CatalogError("\n".join([f"{first} (for {shown(values)})", *rest]), hint=error.hint)


def _is_template(data: Mapping[str, Any]) -> bool:
    if not data.keys().isdisjoint(_OWN_KEYS) or _has_reference(data):
        return True
    return any(WHEN in example for example in data.get("examples", ()))


def _has_reference(data: object) -> bool:
    if isinstance(data, str):
        return "${" in data and REFERENCE.search(data) is not None
    if isinstance(data, dict):
        return any(map(_has_reference, data.values()))
    return isinstance(data, list) and any(map(_has_reference, data))


def _check_used(source: Source, at: Where, combination: Combination, used: set[str]) -> None:
    """Refuse variables without use; fields may be for other entries that share the table."""
    for name in combination:
        if name not in used:
            raise source.error(f"the variable {name!r} is not used", (*at, FOR_EACH, name))


def _check_distinct(entries: Sequence[Entry]) -> None:
    first: dict[str, Entry] = {}
    for entry in entries:
        name = entry.data.get("name")
        if name is None:
            return
        other = first.setdefault(name, entry)
        if other is not entry:
            message = f"{entry.label} is named like the one for {shown(other.values)}"
            raise entry.error(message, ("name",))


def _selectors(
    source: Source, at: Where, data: Mapping[str, Any], every: Sequence[Combination]
) -> dict[int, Selector]:
    """Return, by number, what examples are not for all combinations."""
    found: dict[int, Selector] = {}
    for number, example in enumerate(data.get("examples", ())):
        if WHEN in example:
            where = (*at, number, WHEN)
            found[number] = when = Selector(source, where, example[WHEN], every)
            if not any(map(when, every)):
                raise source.error("when: no combination is like this", where)
    return found


class _Maker:
    """Writes an item out for one combination."""

    def __init__(
        self, source: Source, at: Where, expander: Expander, selectors: Mapping[int, Selector]
    ) -> None:
        self.source = source
        self.at = at
        self.expander = expander
        self.selectors = selectors
        self.texts: dict[Where, Expanded] = {}

    def entry(self, data: Mapping[str, Any], combination: Combination) -> Entry:
        values = value_of(combination)
        try:
            made = {
                key: self._examples(item, combination)
                if key == "examples"
                else self._copy(item, (*self.at, key), (key,))
                for key, item in data.items()
                if key not in _OWN_KEYS
            }
            self._complete_conditions(made)
        except CatalogError as error:
            raise labelled(error, values) from error
        return Entry(self.source, self.at, made, values, self.texts)

    def _copy(self, data: object, origin: Where, place: Where) -> Any:  # noqa: ANN401  # YAML
        """Replace the references below the item at *origin*, which comes to stand at *place*."""
        if isinstance(data, dict):
            return {k: self._copy(v, (*origin, k), (*place, k)) for k, v in data.items()}
        if isinstance(data, list):
            return [
                self._copy(item, (*origin, number), (*place, number))
                for number, item in enumerate(data)
            ]
        if not isinstance(data, str):
            return data
        written = Written(data, self.source, origin)
        make = self.expander.pattern if place == ("pattern",) else self.expander.text
        text = self.texts[place] = make(written)
        if place[0] == "opsets" and text.text.isdecimal():
            return int(text.text)
        return text.text

    def _examples(self, examples: Sequence[Any], combination: Combination) -> list[Any]:
        """Copy the examples that are for *combination*."""
        kept: list[Any] = []
        for number, example in enumerate(examples):
            origin = (*self.at, "examples", number)
            when = self.selectors.get(number)
            if when is not None and not when(combination):
                continue
            rest = {key: item for key, item in example.items() if key != WHEN}
            kept.append(self._copy(rest, origin, ("examples", len(kept))))
        return kept

    def _complete_conditions(self, made: dict[str, Any]) -> None:
        """Leave empty conditions out, and add those of the fragments in use."""
        own = [self.texts.pop(("where", n)) for n in range(len(made.get("where", ())))]
        texts = [*own, *map(self.expander.text, self.expander.conditions)]
        kept = [text for text in texts if text.text.strip()]
        self.texts |= {("where", number): text for number, text in enumerate(kept)}
        if kept or "where" in made:
            made["where"] = [text.text for text in kept]
