"""``for_each``: the combinations of values that one entry of a catalogue is written out for."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

from dplcli.dpl.expander import Choice
from dplcli.dpl.template_text import Written
from dplcli.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dplcli.dpl.source import Source
    from dplcli.errors import CatalogError

    Where: TypeAlias = tuple[str | int, ...]
    Combination: TypeAlias = Mapping[str, Choice]

FOR_EACH, EXCEPT, WHEN = "for_each", "except", "when"
_MOST = 10_000
_SHOWN = 40
_KINDS = "a list of values, or a mapping from values to their fields"


def is_name(text: object) -> bool:
    """Tell whether something can name a variable, a field or a fragment."""
    return isinstance(text, str) and text.isascii() and text.isidentifier()


def shown(values: Mapping[str, str]) -> str:
    """Name a combination, for a reader: ``root=conv2d, elt=relu``."""
    return ", ".join(f"{name}={shorten(value)}" for name, value in values.items())


def shorten(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def value_of(combination: Combination) -> dict[str, str]:
    """Return the values of a combination, by variable."""
    return {name: choice.value.text for name, choice in combination.items()}


def combinations(source: Source, at: Where, entry: Mapping[str, Any]) -> list[Combination]:
    """Return what an entry is written out for, in order.

    Variables in a mapping are combined each with each, the last one changing fastest; a list holds
    the combinations themselves. Those that ``except`` names are left out.

    Args:
        source: The file.
        at: Where in it the entry stands.
        entry: What the entry says.

    Raises:
        CatalogError: ``for_each`` or ``except`` makes no sense.
    """
    if FOR_EACH not in entry:
        if EXCEPT in entry:
            raise source.error("except: there is no for_each to leave out from", (*at, EXCEPT))
        return [{}]
    reader = _Reader(source, (*at, FOR_EACH))
    every = reader.read(entry[FOR_EACH])
    kept = every
    for number, item in enumerate(_listed(entry.get(EXCEPT, []))):
        where = (*at, EXCEPT, number) if isinstance(entry[EXCEPT], list) else (*at, EXCEPT)
        taken = Selector(source, where, item, every)
        if not any(map(taken, kept)):
            raise source.error("except: no combination that is left is like this", where)
        kept = [combination for combination in kept if not taken(combination)]
    if not kept:
        raise source.error("except: no combination is left", (*at, EXCEPT))
    return kept


class Selector:
    """Tells which combinations have certain values: ``{root: conv2d, elt: [relu, tanh]}``.

    Raises:
        CatalogError: There is no such variable, or it has no such value.
    """

    def __init__(
        self, source: Source, where: Where, wanted: object, every: Iterable[Combination]
    ) -> None:
        """Read what is *wanted* of *every* combination."""
        if not isinstance(wanted, dict) or not wanted:
            raise source.error("expected a mapping from variables to values", where)
        known: dict[str, set[str]] = {}
        for combination in every:
            for name, value in value_of(combination).items():
                known.setdefault(name, set()).add(value)
        self.wanted: dict[str, set[str]] = {}
        for name, values in wanted.items():
            if name not in known:
                hint = did_you_mean(str(name), known)
                raise source.error(f"there is no variable {name!r}", (*where, name), hint)
            texts = {str(value) for value in _listed(values)}
            strange = sorted(texts - known[name])
            if strange or not texts:
                what = repr(strange[0]) if strange else "[]"
                hint = did_you_mean(what, sorted(known[name]))
                message = f"the variable {name!r} is never {what}"
                raise source.error(message, (*where, name), hint)
            self.wanted[name] = texts

    def __call__(self, combination: Combination) -> bool:
        """Tell whether *combination* has the values."""
        values = value_of(combination)
        return all(values[name] in texts for name, texts in self.wanted.items())


def _listed(values: object) -> list[object]:
    return values if isinstance(values, list) else [values]


class _Reader:
    """Reads what stands under ``for_each``."""

    def __init__(self, source: Source, where: Where) -> None:
        self.source = source
        self.where = where

    def read(self, data: object) -> list[Combination]:
        if isinstance(data, list) and data:
            return self._listed(data)
        if not isinstance(data, dict) or not data:
            message = "for_each: expected a mapping from variables to values"
            raise self.source.error(message, self.where)
        every: dict[str, list[Choice]] = {}
        count = 1
        for name, values in data.items():
            every[self._name(name, (name,))] = choices = list(self._choices(name, values))
            count *= len(choices)
            if count > _MOST:
                message = f"for_each: more than {_MOST:,} combinations"
                raise self.source.error(message, self.where)
        chosen = product(*every.values())
        return [dict(zip(every, choices, strict=True)) for choices in chosen]

    def _listed(self, items: list[object]) -> list[Combination]:
        """Read a list of combinations."""
        found: list[Combination] = []
        for number, item in enumerate(items):
            if not isinstance(item, dict) or not item:
                message = "for_each: expected a mapping from variables to their value"
                raise self.source.error(message, (*self.where, number))
            combination = {
                self._name(name, (number, name)): Choice(self._scalar(value, (number, name)), {})
                for name, value in item.items()
            }
            if found and combination.keys() != found[0].keys():
                odd = min(combination.keys() ^ found[0].keys())
                message = f"for_each: only some of the combinations have {odd!r}"
                raise self.source.error(message, (*self.where, number))
            found.append(combination)
        return found

    def _choices(self, name: str, values: object) -> Iterator[Choice]:
        if isinstance(values, list) and values:
            yield from self._plain_choices(name, values)
        elif isinstance(values, dict) and values:
            yield from self._choices_with_fields(name, values)
        else:
            raise self._wrong(f"for_each: {name}: expected {_KINDS}", (name,))

    def _plain_choices(self, name: str, values: list[object]) -> Iterator[Choice]:
        seen: set[str] = set()
        for number, value in enumerate(values):
            written = self._scalar(value, (name, number))
            if written.text in seen:
                message = f"for_each: {name}: {written.text!r} stands there twice"
                raise self._wrong(message, (name, number))
            seen.add(written.text)
            yield Choice(written, {})

    def _choices_with_fields(self, name: str, values: Mapping[Any, Any]) -> Iterator[Choice]:
        first: Mapping[str, object] | None = None
        for value, fields in values.items():
            key = self._scalar(value, (name, value))._replace(is_key=True)
            if not isinstance(fields, dict):
                raise self._wrong(f"for_each: {name}: expected {_KINDS}", (name, value))
            first = fields if first is None else first
            if first.keys() != fields.keys():
                odd = min(map(str, first.keys() ^ fields.keys()))
                message = f"for_each: only some of the values of {name!r} have {odd!r}"
                raise self._wrong(message, (name, value))
            yield Choice(
                key,
                {
                    self._name(field, (name, value, field)): self._scalar(
                        item, (name, value, field)
                    )
                    for field, item in fields.items()
                },
            )

    def _name(self, name: object, below: Where) -> str:
        if not is_name(name):
            raise self._wrong(f"{name!r} is not a name: letters, digits and _", below)
        return str(name)

    def _scalar(self, value: object, below: Where) -> Written:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self._wrong("for_each: expected a text or a number", below)
        return Written(str(value), self.source, (*self.where, *below))

    def _wrong(self, message: str, below: Where) -> CatalogError:
        return self.source.error(message, (*self.where, *below))
