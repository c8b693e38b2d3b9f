"""Names for the parts of a learned rule, and for the rule itself."""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING

from dplcli.dpl.helpers import FUNCTIONS
from dplcli.ir.operators import schema_of
from dplcli.ir.parameters import MOVED
from dplcli.passes.learning.tables import LEAF_NAMES
from dplcli.passes.outline import unique

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dplcli.ir import Node

_TAKEN = frozenset(
    {*keyword.kwlist, *FUNCTIONS, "const", "input", "is_value", "repeat", "dominates"}
    | {"optional", "unordered", "call", "function", "op"}
)
"""Words that mean something in a pattern or a condition already."""

_MOST_OPERATORS = 6
"""Most operators in the name of a rule."""


class Names:
    """Names for the parts of one pattern, each given once.

    Args:
        reserved: Words that no part may have as its name.
    """

    def __init__(self, reserved: Iterable[str]) -> None:
        """Start with no names given."""
        self.taken = {*_TAKEN, *reserved}

    def new(self, word: str) -> str:
        """Return *word*, or something like it if it is taken."""
        name = unique(word, self.taken.__contains__)
        self.taken.add(name)
        return name


def node_word(node: Node) -> str:
    """Write the operator in snake case: ``mat_mul``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", node.op_type)
    return _identifier(spaced, "node")


def leaf_word(node: Node, slot: int) -> str:
    """Return what the standard calls input *slot* of *node*, in lower case."""
    moved = () if node.domain else MOVED.get(node.op_type, ())
    formal = {item.slot: item.name for item in moved}
    schema = schema_of(node)
    if schema is not None and schema.inputs:
        last = len(schema.inputs) - 1
        formal = dict(enumerate(schema.inputs)) | {k: v for k, v in formal.items() if k > last}
        formal.setdefault(slot, schema.inputs[last])
    word = _identifier(formal.get(slot, "x"), "x")
    return LEAF_NAMES.get(word, word)


def rule_name(nodes: Sequence[Node]) -> str:
    """Name a rule after its operators: ``conv_add_relu``."""
    words = [node_word(node) for node in nodes]
    if len(words) > _MOST_OPERATORS:
        return f"{words[0]}_to_{words[-1]}"
    return "_".join(words)


def _identifier(text: str, otherwise: str) -> str:
    """Make a name in lower case of what *text* has of letters, digits and underscores."""
    word = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower()
    return word if word.isidentifier() else otherwise
