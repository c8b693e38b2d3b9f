"""Templates: entries of a catalogue file that stand for several rules.

``for_each`` lists the values for which an entry is written out. A value replaces ``${name}``. A
text that was written out consists of pieces of the file, so every message has a place in the file.
Where ``${name}`` is a fragment, both texts are parsed, and the tree of the one is put into the
other's.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args

from dplcli.errors import CatalogError, PatternSyntaxError, did_you_mean
from dplcli.ir.types import Exempt
from dplcli.language.expression import parse_lines, wrong

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dplcli.catalog.yaml import YamlSource

    Combination: TypeAlias = "Mapping[str, VariableValue]"

    Where: TypeAlias = tuple[str | int, ...]


# Texts with replaced references, and where each letter was written.


REFERENCE = re.compile(r"\$\$\{|\$\{([^{}\n]*)(\}?)")
"""``${name}``, or ``$${`` which stands for ``${``."""

_QUOTED_OR_COMMENT = re.compile(r"""("[^"\n]*"|'[^'\n]*')|#[^\n]*""")


class ScalarText(NamedTuple):
    """A scalar of a catalogue file.

    Attributes:
        text: What it says.
        source: The file.
        where: The keys and indexes that lead to it in the file's data.
        is_key: Whether it is the key, not the value.
    """

    text: str
    source: YamlSource
    where: Where
    is_key: bool = False

    def position(self, offset: int) -> tuple[int, int]:
        """Return the 0-based line and column of a letter of the text in the file."""
        if self.is_key:
            return self.source.position(self.where)
        line = self.text.count("\n", 0, offset)
        column = offset - (self.text.rfind("\n", 0, offset) + 1)
        return self.source.position_in_text(line + 1, column, self.where)

    def error(self, message: str, offset: int = 0, hint: str | None = None) -> CatalogError:
        """Point at a letter of the text."""
        return self.source.error_at(message, *self.position(offset), hint)

    def references(self, *, skip_comments: bool = False) -> Iterator[re.Match[str]]:
        """Yield each ``${name}`` and ``$${``, in order; *skip_comments* ignores ``#`` comments."""
        skipped = _QUOTED_OR_COMMENT.finditer(self.text) if skip_comments else ()
        comments = [each.span() for each in skipped if each[1] is None]
        for reference in REFERENCE.finditer(self.text):
            if not any(start <= reference.start() < end for start, end in comments):
                yield reference


class TextPiece(NamedTuple):
    """A part of a text, as it was written somewhere.

    Attributes:
        text: The part.
        written: The scalar that it comes from.
        offset: Where in that scalar it begins.
        is_verbatim: Whether the scalar has exactly these letters.
    """

    text: str
    written: ScalarText
    offset: int = 0
    is_verbatim: bool = True


class Expanded(NamedTuple):
    """A text without references: all were replaced.

    Attributes:
        pieces: Its parts, in order.
        base: The scalar that it was made from.
        fragments: In a pattern, what names in it stand for: a fragment's name, and its text.
    """

    pieces: Sequence[TextPiece]
    base: ScalarText
    fragments: Mapping[str, tuple[str, Expanded]] = MappingProxyType({})

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def line_count(self) -> int:
        """The lines of its tree: an empty one, which Python may point to, ends each text."""
        inner = (text.line_count for _, text in self.fragments.values())
        return self.text.count("\n") + 2 + sum(inner)

    def position(self, line: int, column: int) -> tuple[YamlSource, int, int]:
        """Return the file and the 0-based line and column in it for a place in its tree."""
        lines = self.text.split("\n")
        left = line - len(lines) - 1
        for _, text in self.fragments.values():
            if 0 < left <= text.line_count:
                return text.position(left, column)
            left -= text.line_count
        line = min(line, len(lines))
        column = min(column, len(lines[line - 1]))
        return self._position(sum(len(item) + 1 for item in lines[: line - 1]) + column)

    def statements(self, before: int = 0, placed: set[str] | None = None) -> list[ast.stmt]:
        """Parse a pattern, and put the trees of its fragments into its tree.

        The expression of a fragment takes the place of its name. Its other lines go before that
        statement, once.

        Args:
            before: How many lines of trees there are before it.
            placed: The fragments whose lines are there; more are added.

        Raises:
            PatternSyntaxError: It cannot be parsed, or a fragment cannot be put there.
        """
        placed = set() if placed is None else placed
        body = parse_lines("\n" * before + self.text, "the pattern")
        end = before + self.text.count("\n") + 2
        above: dict[int, list[ast.stmt]] = {}
        for name, (fragment, text) in self.fragments.items():
            inner = text.statements(end, placed)
            if not inner:
                raise PatternSyntaxError(f"the fragment {fragment!r} is empty", line=end + 1)
            *lines, last = inner
            if not isinstance(last, ast.Expr):
                what = f"the last line of the fragment {fragment!r} must be an expression"
                raise wrong(last, what)
            there = (n for n, statement in enumerate(body) if _put(last.value, name, statement))
            place = next(there, None)
            if place is None:
                row = self.text.partition(name)[0].split("\n")
                what = f"the fragment {fragment!r} stands for a value, and none can stand here"
                raise PatternSyntaxError(what, line=before + len(row), column=len(row[-1]))
            if fragment not in placed:
                placed.add(fragment)
                above[place] = [*above.get(place, ()), *lines]
            end += text.line_count
        return [each for n, last in enumerate(body) for each in (*above.get(n, ()), last)]

    def _position(self, left: int) -> tuple[YamlSource, int, int]:
        for piece in self.pieces:
            if left < len(piece.text):
                inside = left if piece.is_verbatim else 0
                return piece.written.source, *piece.written.position(piece.offset + inside)
            left -= len(piece.text)
        last = self.pieces[-1] if self.pieces else TextPiece("", self.base)
        end = last.offset + (len(last.text) if last.is_verbatim else 0)
        return last.written.source, *last.written.position(end)


def _put(tree: ast.expr, name: str, statement: ast.stmt) -> bool:
    """Put *tree* where *name* stands in a statement; tell whether it stands there."""
    for holder in ast.walk(statement):
        for field_name, part in ast.iter_fields(holder):
            items = part if isinstance(part, list) else [part]
            for place, item in enumerate(items):
                if isinstance(item, ast.Name) and item.id == name:
                    items[place] = tree
                    setattr(holder, field_name, items if items is part else tree)
                    return True
    return False


# Replacing ``${name}`` in the texts of one rule, by values of variables or by fragments.


_LONGEST = 100_000
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?", re.ASCII)
_LITERAL = "write $${ for ${ itself"


class Fragment(NamedTuple):
    """A part of patterns that several rules share.

    Attributes:
        name: Its name, as in ``${name}``.
        pattern: Lines ``name = expression``, and an expression.
        where: Conditions of every rule that uses it.
    """

    name: str
    pattern: ScalarText
    where: tuple[ScalarText, ...] = ()


class VariableValue(NamedTuple):
    """A value of a variable.

    Attributes:
        value: The value.
        fields: What ``${variable.field}`` stands for.
    """

    value: ScalarText
    fields: Mapping[str, ScalarText]


@dataclass
class Expander:
    """Replaces references, for one combination of values.

    Attributes:
        choices: The value of each variable.
        fragments: The fragments that can be seen.
        used: The variables in use; more are added.
        conditions: The conditions of the fragments in use.
    """

    choices: Mapping[str, VariableValue]
    fragments: Mapping[str, Fragment]
    used: set[str]
    conditions: list[ScalarText] = field(default_factory=list)
    _inside: list[str] = field(default_factory=list)
    _length: int = 0

    def text(self, written: ScalarText, *, in_pattern: bool = False) -> Expanded:
        """Replace the references in a text; only a pattern may refer to fragments.

        A name stands where a fragment is to be put. The conditions of fragments go to
        :attr:`conditions`, once for each rule.

        Raises:
            CatalogError: Nothing has the name, or it is a fragment's and the text is no pattern.
        """
        fragments: dict[str, tuple[str, Expanded]] = {}
        pieces = self._pieces(written, fragments if in_pattern else None)
        return Expanded(pieces, written, fragments)

    def _pieces(
        self, written: ScalarText, fragments: dict[str, tuple[str, Expanded]] | None
    ) -> list[TextPiece]:
        self._length += len(written.text) + 1
        if self._length > _LONGEST:
            raise written.error(f"the rule is more than {_LONGEST:,} letters long, written out")
        pieces: list[TextPiece] = []
        at = 0
        for reference in written.references(skip_comments=fragments is not None):
            pieces.append(TextPiece(written.text[at : reference.start()], written, at))
            at = reference.end()
            if reference[1] is None:
                pieces.append(TextPiece("${", written, reference.start(), is_verbatim=False))
            else:
                pieces += self._replaced(written, reference, fragments)
        pieces.append(TextPiece(written.text[at:], written, at))
        return [piece for piece in pieces if piece.text]

    def _replaced(
        self,
        written: ScalarText,
        reference: re.Match[str],
        fragments: dict[str, tuple[str, Expanded]] | None,
    ) -> list[TextPiece]:
        """Return what a reference stands for; a fragment is added to *fragments*."""
        name = reference[1].strip()
        if not reference[2] or not _NAME.fullmatch(name):
            message = f"{reference[0]!r} is not a name in ${{…}}"
            raise written.error(message, reference.start(), _LITERAL)
        if name in self._inside:
            raise written.error(f"{name!r} stands for itself", reference.start())
        self._inside.append(name)
        fragment = self.fragments.get(name)
        if fragment is None:
            pieces = self._pieces(self._value(name, written, reference.start()), fragments)
        elif fragments is None:
            message = f"{name!r} is a fragment: it can stand in patterns only"
            raise written.error(message, reference.start())
        else:
            word = f"_fragment_{len(fragments)}_"
            fragments[word] = name, self.text(fragment.pattern, in_pattern=True)
            pieces = [TextPiece(word, written, reference.start(), is_verbatim=False)]
            self.conditions += [each for each in fragment.where if each not in self.conditions]
        self._inside.pop()
        return pieces

    def _value(self, name: str, written: ScalarText, offset: int) -> ScalarText:
        """Look a variable or one of its fields up."""
        variable, _, part = name.partition(".")
        choice = self.choices.get(variable)
        if choice is None:
            names = [*self.choices, *self.fragments]
            hint = did_you_mean(variable, names) or (_LITERAL if not names else None)
            message = f"there is no variable or fragment {variable!r}"
            raise written.error(message, offset, hint or f"there are: {', '.join(names)}")
        self.used.add(variable)
        if not part:
            return choice.value
        if part not in choice.fields:
            hint = did_you_mean(part, choice.fields)
            raise written.error(f"the variable {variable!r} has no {part!r}", offset, hint)
        return choice.fields[part]


# ``for_each``: the combinations of values for which an entry is written out.


FOR_EACH, EXCEPT, WHEN = "for_each", "except", "when"
_MOST = 10_000
_SHOWN = 40
_KINDS = "a list of values, or a mapping from values to their fields"


def is_name(text: object) -> bool:
    """Tell whether *text* can name a variable, a field or a fragment."""
    return isinstance(text, str) and text.isascii() and text.isidentifier()


def shown(values: Mapping[str, str]) -> str:
    """Write a combination: ``root=conv2d, elt=relu``."""
    return ", ".join(f"{name}={shorten(value)}" for name, value in values.items())


def shorten(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def value_of(combination: Combination) -> dict[str, str]:
    """Return the values of a combination, by variable."""
    return {name: choice.value.text for name, choice in combination.items()}


def combinations(source: YamlSource, at: Where, entry: Mapping[str, Any]) -> list[Combination]:
    """Return the combinations of values for which an entry is written out, in order.

    A mapping gives all combinations of its variables; the last variable changes fastest. A list
    holds the combinations themselves. Combinations that ``except`` names are left out.

    Args:
        source: The file.
        at: Where in it the entry stands.
        entry: What the entry says.

    Raises:
        CatalogError: ``for_each`` or ``except`` is invalid.
    """
    if FOR_EACH not in entry:
        if any(item not in EXEMPT for item in _listed(entry.get(EXCEPT, []))):
            raise source.error("except: there is no for_each to leave out from", (*at, EXCEPT))
        return [{}]
    reader = _Reader(source, (*at, FOR_EACH))
    every = reader.read(entry[FOR_EACH])
    kept = every
    for number, item in enumerate(_listed(entry.get(EXCEPT, []))):
        if item in EXEMPT:
            continue
        where = (*at, EXCEPT, number) if isinstance(entry[EXCEPT], list) else (*at, EXCEPT)
        taken = Selector(source, where, item, every)
        if not any(map(taken, kept)):
            raise source.error("except: no combination that is left is like this", where)
        kept = [combination for combination in kept if not taken(combination)]
    if not kept:
        raise source.error("except: no combination is left", (*at, EXCEPT))
    return kept


class Selector:
    """Selects combinations by their values: ``{root: conv2d, elt: [relu, tanh]}``.

    Raises:
        CatalogError: There is no such variable, or it has no such value.
    """

    def __init__(
        self, source: YamlSource, where: Where, wanted: object, every: Iterable[Combination]
    ) -> None:
        if not isinstance(wanted, dict) or not wanted:
            raise source.error("expected a mapping from variables to values", where)
        possible: dict[str, set[str]] = {}
        for combination in every:
            for name, value in value_of(combination).items():
                possible.setdefault(name, set()).add(value)
        self.wanted: dict[str, set[str]] = {}
        for name, values in wanted.items():
            if name not in possible:
                hint = did_you_mean(str(name), possible)
                raise source.error(f"there is no variable {name!r}", (*where, name), hint)
            texts = {str(value) for value in _listed(values)}
            strange = sorted(texts - possible[name])
            if strange or not texts:
                what = repr(strange[0]) if strange else "[]"
                hint = did_you_mean(what, sorted(possible[name]))
                message = f"the variable {name!r} is never {what}"
                raise source.error(message, (*where, name), hint)
            self.wanted[name] = texts

    def __call__(self, combination: Combination) -> bool:
        """Tell whether *combination* has the values."""
        values = value_of(combination)
        return all(values[name] in texts for name, texts in self.wanted.items())


def _listed(values: object) -> list[object]:
    return values if isinstance(values, list) else [values]


class _Reader(NamedTuple):
    """Reads what stands under ``for_each``."""

    source: YamlSource
    where: Where

    def read(self, data: object) -> list[Combination]:
        if isinstance(data, list) and data:
            return self._listed(data)
        if not isinstance(data, dict) or not data:
            raise self._wrong("for_each: expected a mapping from variables to values", ())
        every: dict[str, list[VariableValue]] = {}
        count = 1
        for name, values in data.items():
            every[self._name(name, (name,))] = choices = list(self._choices(name, values))
            count *= len(choices)
            if count > _MOST:
                raise self._wrong(f"for_each: more than {_MOST:,} combinations", ())
        chosen = product(*every.values())
        return [dict(zip(every, choices, strict=True)) for choices in chosen]

    def _listed(self, items: list[object]) -> list[Combination]:
        """Read a list of combinations."""
        listed: list[Combination] = []
        for number, item in enumerate(items):
            if not isinstance(item, dict) or not item:
                message = "for_each: expected a mapping from variables to their value"
                raise self._wrong(message, (number,))
            texts = self._scalars(item, (number,))
            if listed and texts.keys() != listed[0].keys():
                odd = min(texts.keys() ^ listed[0].keys())
                message = f"for_each: only some of the combinations have {odd!r}"
                raise self._wrong(message, (number,))
            listed.append({name: VariableValue(text, {}) for name, text in texts.items()})
        return listed

    def _choices(self, name: str, values: object) -> Iterator[VariableValue]:
        """Read the values of a variable, which may have fields."""
        if not isinstance(values, (list, dict)) or not values:
            raise self._wrong(f"for_each: {name}: expected {_KINDS}", (name,))
        if isinstance(values, list):
            seen: set[str] = set()
            for number, value in enumerate(values):
                written = self._scalar(value, (name, number))
                if written.text in seen:
                    message = f"for_each: {name}: {written.text!r} stands there twice"
                    raise self._wrong(message, (name, number))
                seen.add(written.text)
                yield VariableValue(written, {})
            return
        first: Any = next(iter(values.values()))
        for value, fields in values.items():
            key = self._scalar(value, (name, value))._replace(is_key=True)
            if not isinstance(fields, dict):
                raise self._wrong(f"for_each: {name}: expected {_KINDS}", (name, value))
            if first.keys() != fields.keys():
                odd = min(map(str, first.keys() ^ fields.keys()))
                message = f"for_each: only some of the values of {name!r} have {odd!r}"
                raise self._wrong(message, (name, value))
            yield VariableValue(key, self._scalars(fields, (name, value)))

    def _scalars(self, data: Mapping[Any, Any], below: Where) -> dict[str, ScalarText]:
        return {
            self._name(name, (*below, name)): self._scalar(value, (*below, name))
            for name, value in data.items()
        }

    def _name(self, name: object, below: Where) -> str:
        if not is_name(name):
            raise self._wrong(f"{name!r} is not a name: letters, digits and _", below)
        return str(name)

    def _scalar(self, value: object, below: Where) -> ScalarText:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self._wrong("for_each: expected a text or a number", below)
        return ScalarText(str(value), self.source, (*self.where, *below))

    def _wrong(self, message: str, below: Where) -> CatalogError:
        return self.source.error(message, (*self.where, *below))


# Writing the entries of a catalogue file out, one for each rule.


_OWN_KEYS = frozenset({FOR_EACH, EXCEPT})
EXEMPT = get_args(Exempt)
"""What ``except`` may name beside combinations: numbers for which a rewrite may be wrong."""


class RuleEntry(NamedTuple):
    """The entry of one rule, with all references replaced, and where its texts were written.

    Attributes:
        source: The file.
        at: Where in it the entry stands.
        data: What it says.
        values: The value of each variable.
        texts: The texts with replaced references, by their keys in *data*.
    """

    source: YamlSource
    at: Where
    data: Mapping[str, Any]
    values: Mapping[str, str]
    texts: Mapping[Where, Expanded]

    @property
    def label(self) -> str:
        """The rule's name and the values of its variables."""
        return f"rule {self.data['name']!r}" + (f" ({shown(self.values)})" if self.values else "")

    @property
    def origin(self) -> str:
        """The file and line of the rule's name."""
        return self.line(("name",))

    def line(self, where: Where) -> str:
        """Name the file and line of the item at *where* in the entry."""
        text = self.texts.get(where)
        base = ScalarText("", self.source, (*self.at, *where)) if text is None else text.base
        return f"{base.source.label}:{base.source.line(base.where)}"

    def is_written(self, where: Where) -> bool:
        """Tell whether the text at *where* stands in the file as it is, without references."""
        text = self.texts.get(where)
        return text is None or all(piece.written is text.base for piece in text.pieces)

    def error(self, message: str, where: Where, hint: str | None = None) -> CatalogError:
        """Point at the item at *where* in the entry."""
        text = self.texts.get(where)
        if text is None:
            return self.source.error(message, (*self.at, *where), hint)
        return text.base.source.error(message, text.base.where, hint)

    def error_in_text(self, error: PatternSyntaxError, where: Where) -> CatalogError:
        """Point at the mistakes inside the text at *where*."""
        mistakes = []
        for each in (error, *error.further):
            source, line, column = self._position(each.line, each.column, where)
            message = f"{self.label}: {each.message}"
            is_cut = where[0] == "where" and "is not an expression" in each.message
            hint = each.hint or (source.quoting_hint(line) if is_cut else None)
            mistakes.append(source.error_at(message, line, column, hint))
        return CatalogError.of(mistakes)

    def place_in_text(self, line: int, column: int, where: Where) -> str:
        """Return the position of a letter of the text at *where*: ``rules.yaml:12:9``."""
        source, found_line, found_column = self._position(line, column, where)
        return f"{source.label}:{found_line + 1}:{found_column + 1}"

    def statements(self, where: Where) -> list[ast.stmt] | None:
        """Parse the text at *where*, a pattern; None if it stands in the file as it is.

        Raises:
            PatternSyntaxError: It cannot be parsed.
        """
        text = self.texts.get(where)
        return None if text is None else text.statements()

    def _position(self, line: int, column: int, where: Where) -> tuple[YamlSource, int, int]:
        text = self.texts.get(where)
        if text is not None:
            return text.position(line, column)
        return self.source, *self.source.position_in_text(line, column, (*self.at, *where))


def written_out(  # noqa: C901  # a check for each mistake
    source: YamlSource, at: Where, data: Mapping[str, Any], fragments: Mapping[str, Fragment]
) -> Iterator[RuleEntry]:
    """Yield the entries that one item of ``patterns``, ``rewrites`` or ``examples`` stands for.

    Args:
        source: The file.
        at: Where in it the item stands.
        data: The item; its keys were checked.
        fragments: The fragments that can be seen.

    Raises:
        CatalogError: A reference is wrong, or a variable is not used.
    """
    examples = data.get("examples", ())
    has_keys = not data.keys().isdisjoint(_OWN_KEYS) or any(WHEN in each for each in examples)
    if not has_keys and not _has_reference(data):
        yield RuleEntry(source, at, data, {}, {})
        return
    every = combinations(source, at, data)
    for name in every[0]:
        if name in fragments:
            raise source.error(f"there is a fragment {name!r}, too", (*at, FOR_EACH, name))
    used: set[str] = set()
    entries = []
    selectors: dict[int, Selector] = {}  # of examples that are not for all combinations
    for number, example in enumerate(examples):
        if WHEN in example:
            where = (*at, "examples", number, WHEN)
            selectors[number] = when = Selector(source, where, example[WHEN], every)
            if not any(map(when, every)):
                raise source.error("when: no combination is like this", where)
    for combination in every:
        maker = _Maker(source, at, Expander(combination, fragments, used), selectors)
        entries.append(maker.entry(data, combination))
    for name in every[0]:  # fields may be unused: other entries may share the table
        if name not in used:
            raise source.error(f"the variable {name!r} is not used", (*at, FOR_EACH, name))
    first: dict[str, RuleEntry] = {}
    for entry in entries:
        other = first.setdefault(entry.data["name"], entry) if "name" in entry.data else entry
        if other is not entry:
            message = f"{entry.label} is named like the one for {shown(other.values)}"
            raise entry.error(message, ("name",))
    yield from entries


def labelled(error: CatalogError, values: Mapping[str, str]) -> CatalogError:
    """Add the values of its combination to an error, if it has variables."""
    if not values:
        return error
    first, *rest = error.message.split("\n")
    return CatalogError("\n".join([f"{first} (for {shown(values)})", *rest]), hint=error.hint)


def _has_reference(data: object) -> bool:
    if isinstance(data, str):
        return "${" in data and REFERENCE.search(data) is not None
    if isinstance(data, dict):
        return any(map(_has_reference, data.values()))
    return isinstance(data, list) and any(map(_has_reference, data))


@dataclass
class _Maker:
    """Writes an item out for one combination."""

    source: YamlSource
    at: Where
    expander: Expander
    selectors: Mapping[int, Selector]
    texts: dict[Where, Expanded] = field(default_factory=dict)

    def entry(self, data: Mapping[str, Any], combination: Combination) -> RuleEntry:
        values = value_of(combination)
        try:
            entry = {
                key: self._examples(item, combination)
                if key == "examples"
                else self._copy(item, (*self.at, key), (key,))
                for key, item in data.items()
                if key not in _OWN_KEYS
            }
            if words := [w for w in _listed(data.get(EXCEPT, [])) if w in EXEMPT]:
                entry[EXCEPT] = words
            own = [self.texts.pop(("where", n)) for n in range(len(entry.get("where", ())))]
            texts = [*own, *map(self.expander.text, self.expander.conditions)]
            kept = [text for text in texts if text.text.strip()]
            self.texts |= {("where", number): text for number, text in enumerate(kept)}
            if kept or "where" in entry:
                entry["where"] = [text.text for text in kept]
        except CatalogError as error:
            raise labelled(error, values) from error
        return RuleEntry(self.source, self.at, entry, values, self.texts)

    def _copy(self, data: object, origin: Where, place: Where) -> Any:  # noqa: ANN401  # YAML
        """Copy an item from *origin* to *place*, with its references replaced."""
        if isinstance(data, dict):
            return {k: self._copy(v, (*origin, k), (*place, k)) for k, v in data.items()}
        if isinstance(data, list):
            return [
                self._copy(item, (*origin, number), (*place, number))
                for number, item in enumerate(data)
            ]
        if not isinstance(data, str):
            return data
        written = ScalarText(data, self.source, origin)
        text = self.expander.text(written, in_pattern=place == ("pattern",))
        self.texts[place] = text
        if place[0] in {"opsets", "priority"} and text.text.removeprefix("-").isdecimal():
            return int(text.text)
        return text.text

    def _examples(self, examples: Sequence[Any], combination: Combination) -> list[Any]:
        """Copy the examples that are for *combination*."""
        kept: list[Any] = []
        for number, example in enumerate(examples):
            when = self.selectors.get(number)
            if when is None or when(combination):
                rest = {key: item for key, item in example.items() if key != WHEN}
                origin = (*self.at, "examples", number)
                kept.append(self._copy(rest, origin, ("examples", len(kept))))
        return kept
