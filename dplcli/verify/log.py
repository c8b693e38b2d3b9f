"""What a model that dpl wrote says of itself: which values it took over from the original.

A rewrite leaves the names of the nodes that it replaced, a partition those of the nodes that a
call stands for (`dplcli.ir.marks`). Files come from anywhere: what does not read is as good as
missing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from dplcli.ir.marks import NODES_KEY, ORIGIN_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx


class Logged(NamedTuple):
    """A value that kept its name, and who made it before.

    Attributes:
        name: The value.
        makers: Names of the nodes of the original, one of which made it.
        op_type: The operator of that node; "" if it is not known.
    """

    name: str
    makers: frozenset[str]
    op_type: str = ""

    def is_made_by(self, node: onnx.NodeProto) -> bool:
        """Whether *node*, of the original, may be who made the value."""
        return node.name in self.makers and self.op_type in {"", node.op_type}


def logged_values(node: onnx.NodeProto) -> Iterator[Logged]:
    """Yield the outputs of a node of the candidate that its metadata tells the origin of."""
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    if replaced := metadata.get(ORIGIN_KEY):
        makers = frozenset(replaced.split(", "))
        yield from (Logged(name, makers) for name in node.output if name)
    yield from (
        found for found in _entries(metadata.get(NODES_KEY, "")) if found.name in node.output
    )


def _entries(text: str) -> Iterator[Logged]:
    """Yield what the nodes that a call stands for made."""
    try:
        entries = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return
    for entry in entries if isinstance(entries, list) else ():
        match entry:
            case [str(op), str(name), [*outputs], *_]:
                op_type = op.rpartition("::")[2]
                for output in outputs:
                    if isinstance(output, str) and output:
                        yield Logged(output, frozenset({name}), op_type)
            case _:
                continue
