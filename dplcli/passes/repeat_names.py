"""What the names in a model tell of its blocks: where one begins, and what to call it.

Exporters name nodes and weights after modules: ``/encoder/layer.3/attention/Softmax``,
``encoder.layer.3.attention.query.weight``. Where such names tell blocks apart they decide what
the wiring leaves open; a model without names gets along without.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dplcli.ir import Node, Value

    Path: TypeAlias = tuple[str, ...]

_SEPARATORS = re.compile(r"[/.:]+")
_NOT_IN_NAMES = re.compile(r"[\W_]+")
_LONGEST = 4


def path_of(name: str) -> Path:
    """Split a name into the modules that it goes through, and what comes last."""
    return tuple(part for part in _SEPARATORS.split(name) if part)


def paths_of_node(node: Node) -> list[Path]:
    """Return what the names of *node* and of its weights say of where it is."""
    names = [node.name, *(v.name for v in node.inputs if v is not None and v.is_initializer)]
    return [path for path in map(path_of, names) if len(path) > 1]


def find_scopes(rows: Iterable[Sequence[Node]]) -> list[Path] | None:
    """Find the module that each block belongs to.

    Args:
        rows: Nodes that stand for each other, one per block.

    Returns:
        By block, the path that most rows agree on and that no two blocks share; None if there is
        none.
    """
    votes: Counter[tuple[Path, ...]] = Counter()
    for row in rows:
        of_nodes = [paths_of_node(node) for node in row]
        if len({len(paths) for paths in of_nodes}) != 1:
            continue
        for paths in zip(*of_nodes, strict=True):
            scopes = _distinct_prefixes(paths)
            if scopes is not None:
                votes[scopes] += 1
    return list(votes.most_common(1)[0][0]) if votes else None


def _distinct_prefixes(paths: Sequence[Path]) -> tuple[Path, ...] | None:
    """Return the shortest beginnings of equal length that tell *paths* apart; modules only."""
    shortest = min(map(len, paths))
    for depth in range(1, shortest):
        prefixes = tuple(path[:depth] for path in paths)
        if len(set(prefixes)) == len(prefixes):
            return prefixes
    return None


def count_at_home(row: Sequence[Node], scopes: Sequence[Path]) -> int:
    """Count the nodes of *row* that names place in their own block."""
    return sum(
        any(path[: len(scope)] == scope for path in paths_of_node(node))
        for node, scope in zip(row, scopes, strict=True)
    )


def names_for_block(scopes: Sequence[Path] | None) -> list[str]:
    """Name a kind of block after what the modules of its members have in common.

    Returns:
        Names to choose from, the shortest first; none if the modules tell nothing.
    """
    parts: list[str] = []
    for level in zip(*(scopes or ()), strict=True):
        bare = {re.sub(r"[0-9]+", "", part).strip("_-") for part in level}
        if len(bare) != 1:
            break
        part = _NOT_IN_NAMES.sub("_", bare.pop()).strip("_")
        if part and (not parts or parts[-1] != part):
            parts.append(part)
    if len(parts) > 1 and len(parts[0]) == 1:
        parts = parts[1:]
    if not any(len(part) > 1 for part in parts):
        return []
    return ["_".join(parts[-count:]) for count in range(min(2, len(parts)), len(parts) + 1)]


def name_input(values: Sequence[Value], readers: Sequence[Node], formal: str) -> str | None:
    """Name an input of a function after the values given for it.

    Args:
        values: What each block gives.
        readers: The nodes that read them.
        formal: What the operator of these calls what it reads.

    Returns:
        The name that they share, if all blocks are given the same; else, for weights, what their
        names end in alike, or what reads them; else None.
    """
    if len(set(values)) == 1:
        return _plain(path_of(values[0].name)[-_LONGEST:])
    if not all(value.is_initializer for value in values):
        return None
    own = _plain(_common_end([value.name for value in values])[-_LONGEST:])
    if own is not None:
        return own
    reader = _common_end([node.name for node in readers])[-_LONGEST:]
    return _plain((*reader, formal)) if reader else None


def name_node(nodes: Sequence[Node]) -> str | None:
    """Name a node of a function after what the names of those it stands for end in alike.

    None if those names tell nothing. It begins with a slash, for onnxruntime puts the name of the
    call and an underscore before it: ``layer`` and ``1/Relu`` shall not read as ``layer_1`` and
    ``Relu`` do.
    """
    common = _common_end([node.name for node in nodes])
    return "/" + "/".join(common) if common else None


def _common_end(names: Sequence[str]) -> Path:
    """Return what the paths of *names* end in alike."""
    common: list[str] = []
    for parts in zip(*(reversed(path_of(name)) for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return tuple(reversed(common))


def _plain(parts: Sequence[str]) -> str | None:
    """Join *parts* to what may be a name in ONNX text, too."""
    while parts and parts[0].isdigit():
        parts = parts[1:]
    name = _NOT_IN_NAMES.sub("_", "_".join(parts)).strip("_")
    if not name or not any(letter.isalpha() for letter in name):
        return None
    return f"_{name}" if name[0].isdigit() else name
