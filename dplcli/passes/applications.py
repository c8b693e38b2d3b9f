"""What was rewritten, in words that stay true after further edits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dplcli.ir.scopes import scope_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.ir import Node, Value
    from dplcli.passes.replace import Change

    Outputs: TypeAlias = tuple[Value | None, ...]


class NodeIdentity(NamedTuple):
    """What identifies a node to a reader; the output's name does so even without node names."""

    op_type: str
    domain: str
    name: str
    output: str

    @property
    def qualified_op(self) -> str:
        """``Conv``, or ``com.microsoft.Gelu`` outside the standard domain."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    @property
    def label(self) -> str:
        """The node's name, else its first output's."""
        return self.name or self.output


class Application:
    """One application of a rule.

    Attributes:
        number: Counts from 1.
        round: The round it was made in.
        rule: The rule's name.
        scope: The graph, as :func:`dplcli.ir.scopes.scope_of` names it.
    """

    __slots__ = ("_added", "_removed", "_root", "number", "round", "rule", "scope")

    def __init__(self, number: int, turn: int, root: tuple[Node, Outputs], change: Change) -> None:
        """Note *change*, made in round *turn* at *root* as it was before."""
        match = change.match
        self.number = number
        self.round = turn
        self.rule = match.rule.qualified_name
        self.scope = scope_of(match.root.graph)
        self._root = root
        self._removed = [(node, node.outputs) for node in change.removed]
        self._added = [(node, node.outputs) for node in change.added]

    @property
    def root(self) -> NodeIdentity:
        """The node that made the first output."""
        return identify(*self._root)

    @property
    def removed(self) -> tuple[NodeIdentity, ...]:
        """The nodes taken out."""
        return tuple(identify(*item) for item in self._removed)

    @property
    def added(self) -> tuple[NodeIdentity, ...]:
        """The nodes put in."""
        return tuple(identify(*item) for item in self._added)


def identify(node: Node, outputs: Outputs) -> NodeIdentity:
    """Say which node *node* was when these were its outputs."""
    output = next((output.name for output in outputs if output is not None), "")
    return NodeIdentity(node.op_type, node.domain, node.name, output)


def list_nodes(nodes: Sequence[NodeIdentity], most: int = 8) -> str:
    """Name nodes for a reader: ``Conv 'c', Relu 'r' and 3 more``."""
    shown = ", ".join(f"{node.qualified_op} {node.label!r}" for node in nodes[:most])
    return f"{shown} and {len(nodes) - most} more" if len(nodes) > most else shown
