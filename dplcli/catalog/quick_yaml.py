"""Common YAML read by libyaml, with the positions of its parts.

The parser of libyaml, which is written in C, is some ten times faster than the one that keeps
positions. It gives a tree of nodes with their marks; data and positions are taken from these.
Whatever is unusual is refused, for the slower parser to read: so each text means the same to both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, SequenceNode

if TYPE_CHECKING:
    from ruamel.yaml.constructor import SafeConstructor
    from ruamel.yaml.error import StringMark
    from ruamel.yaml.nodes import Node

CORE = "tag:yaml.org,2002:"
"""How the tags of YAML itself begin."""

SCALARS = frozenset({"str", "int", "float", "bool", "null"})
"""The tags of scalars that catalogues have."""

MAY_HAVE_TAGS = re.compile(r"(?:^|[\s\[{,:?-])!(?!=\s)", re.MULTILINE)
"""Found in every text with tags, and hardly in others."""

_UNUSUAL = re.compile(r"^%|[\t\x85\u2028\u2029\ufeff]|[|>][-+\d]*#", re.MULTILINE)
"""Directives, and what the two parsers read differently."""

_DEEPEST = 10_000
"""Lists and mappings nest no deeper in what libyaml is given: it would overflow the stack."""


class UnusualTextError(Exception):
    """The text is not all mappings, lists and scalars: it has tags, merges or repeated keys."""


class Positions:
    """Where the items of a mapping or a list begin, as ruamel.yaml's ``LineCol`` says it.

    Attributes:
        line: The 0-based line of the mapping or list itself.
        col: Its 0-based column.
    """

    def __init__(self, start: StringMark) -> None:
        self.line, self.col = start.line, start.column
        self._keys: dict[str | int, tuple[int, int]] = {}
        self._items: dict[str | int, tuple[int, int]] = {}

    def note(self, key: str | int, of_key: StringMark, of_item: StringMark) -> None:
        """Note where an item begins, and its key; that of a list is its number."""
        self._keys[key] = of_key.line, of_key.column
        self._items[key] = of_item.line, of_item.column

    def key(self, key: str | int) -> tuple[int, int]:
        """Return the position of a key."""
        return self._keys[key]

    def item(self, key: str | int) -> tuple[int, int]:
        """Return the position of an item."""
        return self._items[key]

    value = item


class Mapping(dict[Any, Any]):
    """A mapping whose items have positions."""

    lc: Positions


class List(list[Any]):
    """A list whose items have positions."""

    lc: Positions


def read(text: str) -> object:
    """Read YAML.

    Raises:
        UnusualTextError: It is not the common case.
        YAMLError: It is no YAML, or libyaml does not take it as such.
    """
    longest = max(map(len, text.splitlines()), default=0)
    if longest + text.count("[") + text.count("{") > _DEEPEST:
        raise UnusualTextError
    if MAY_HAVE_TAGS.search(text) is not None or _UNUSUAL.search(text) is not None:
        raise UnusualTextError
    reader = YAML(typ="safe")
    root = reader.compose(text)
    return None if root is None else _Builder(reader.constructor).built(root)


_UNDER_WAY = object()


class _Builder:
    """Makes data of composed nodes.

    Args:
        constructor: Reads numbers.
    """

    def __init__(self, constructor: SafeConstructor) -> None:
        self.constructor = constructor
        self.made: dict[int, object] = {}

    def built(self, node: Node) -> object:
        """Return the data of a node; an alias is the same node, and stands for the same data."""
        number = id(node)
        if number not in self.made:
            self.made[number] = _UNDER_WAY
            self.made[number] = self._read(node)
        if self.made[number] is _UNDER_WAY:
            raise UnusualTextError  # it holds itself
        return self.made[number]

    def _read(self, node: Node) -> object:
        if isinstance(node, MappingNode):
            return self._mapping(node)
        if isinstance(node, SequenceNode):
            found = List(map(self.built, node.value))
            found.lc = Positions(node.start_mark)
            for number, item in enumerate(node.value):
                found.lc.note(number, item.start_mark, item.start_mark)
            return found
        kind = str(node.tag).removeprefix(CORE)
        if kind not in SCALARS or (kind == "null" and not node.value):
            # "<<" merges, "=", dates; and the parsers differ in where an empty item begins
            raise UnusualTextError
        return node.value if kind == "str" else self.constructor.construct_object(node)

    def _mapping(self, node: MappingNode) -> Mapping:
        found = Mapping()
        found.lc = Positions(node.start_mark)
        for key_node, item in node.value:
            key = self.built(key_node)
            if not isinstance(key, (str, int)) or key in found:
                raise UnusualTextError
            found[key] = self.built(item)
            found.lc.note(key, key_node.start_mark, item.start_mark)
        return found
