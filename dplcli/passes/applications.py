"""What was rewritten, in words that stay true after further edits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.ir.scopes import scope_of

if TYPE_CHECKING:
    from dplcli.ir import Node
    from dplcli.passes.replace import Change


class NodeIdentity(NamedTuple):
    """What identifies a node to a reader; the output's name does so even without node names."""

    op_type: str
    domain: str
    name: str
    output: str


def identify(node: Node) -> NodeIdentity:
    """Say which node *node* is."""
    output = next((output.name for output in node.outputs if output is not None), "")
    return NodeIdentity(node.op_type, node.domain, node.name, output)


class Application(NamedTuple):
    """One application of a rule.

    Attributes:
        number: Counts from 1.
        round: The round it was made in.
        rule: The rule's name.
        scope: The graph, as :func:`dplcli.ir.scopes.scope_of` names it.
        root: The node that made the first output.
        removed: The nodes taken out.
        added: The nodes put in.
    """

    number: int
    round: int
    rule: str
    scope: str
    root: NodeIdentity
    removed: tuple[NodeIdentity, ...]
    added: tuple[NodeIdentity, ...]


def describe_change(number: int, turn: int, root: NodeIdentity, change: Change) -> Application:
    """Note *change*, whose root was *root* before it."""
    return Application(
        number,
        turn,
        change.match.rule.qualified_name,
        scope_of(change.match.root.graph),
        root,
        tuple(map(identify, change.removed)),
        tuple(map(identify, change.added)),
    )
