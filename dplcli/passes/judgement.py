"""Whether a match may be taken: overlap, escaping values, conditions, convexity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dplcli.dpl.match import Match, Rejection
from dplcli.dpl.rule import PatternRule, RewriteRule
from dplcli.errors import DplError, PassError
from dplcli.ir.randomness import draws_random
from dplcli.ir.traversal import (
    behind_identities,
    enclosing_node,
    needed_within,
    path_through_outside,
    users,
)
from dplcli.passes.cleanup import is_read
from dplcli.passes.written import is_leaf_call

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.dpl.rule import Check, Rule
    from dplcli.ir import Graph, Node, Value


@dataclass
class Taken:
    """The matches taken so far, as far as a further one must mind them.

    Attributes:
        claimed: By node, the match whose call takes its place.
        copying: By node that stays, the matches whose functions compute it again.
        contracted: By graph and node of a wide match (:func:`is_wide`), what the match makes.
    """

    claimed: dict[Node, Match] = field(default_factory=dict)
    copying: dict[Node, list[Match]] = field(default_factory=dict)
    contracted: dict[Graph, dict[Node, list[Value]]] = field(default_factory=dict)

    def add(self, match: Match, absorbed: Iterable[Match] = ()) -> None:
        """Take *match*, in the place of those *absorbed*."""
        for smaller in absorbed:
            for node in smaller.nodes:
                if smaller in self.copying.get(node, ()):
                    self.copying[node].remove(smaller)
        replaced = replaced_nodes(match)
        for node in replaced:
            self.claimed[node] = match
        if len(replaced) < len(match.nodes):
            for node in set(match.nodes).difference(replaced):
                self.copying.setdefault(node, []).append(match)
        if is_wide(match):
            made = leaving_values(match)
            of_graph = self.contracted.setdefault(match.root.graph, {})
            of_graph.update((node, made) for node in match.nodes)

    def readers(self, value: Value, user: Node) -> list[Match]:
        """Return the matches that copy *user* but not what makes *value*: their calls read it."""
        copying = self.copying.get(user, ())
        return [match for match in copying if value.producer not in match.nodes]


def judge(
    match: Match, taken: Taken | None = None, absorbed: Sequence[Match] = ()
) -> Match | Rejection:
    """Return *match* as it may be taken, or why it must be refused.

    Args:
        match: What was found.
        taken: The matches taken before.
        absorbed: Those of them that it takes the place of.
    """
    taken = taken or Taken()
    if isinstance(match.rule, RewriteRule) and not any(map(is_read, match.outputs)):
        return Rejection(match.rule, match.root, "check", "nobody reads what it makes", match.root)
    objection = _object_to_nodes(match, taken.claimed, absorbed)
    if objection is not None:
        return objection
    escaping = escaping_values(match, taken)
    if escaping:
        objection = _object_to_escape(match, escaping, taken)
        match = match.with_escaping(tuple(escaping))
    objection = objection or _object_to_facts(match)
    if objection is not None:
        return objection
    return _object_to_shape(match, taken.contracted.get(match.root.graph, {})) or match


def _object_to_nodes(
    match: Match, claimed: Mapping[Node, Match], absorbed: Sequence[Match]
) -> Rejection | None:
    rule, root = match.rule, match.root
    is_inner = root.graph.owner is not None
    for node in match.nodes:
        owner = claimed.get(node)
        if owner is not None and all(owner is not match for match in absorbed):
            reason = f"{node.label!r} is in another match, of {owner.rule.qualified_name}"
            return Rejection(rule, root, "overlap", reason, node)
        if is_inner or node.domain or node.subgraphs:
            reason = _object_to_member(node, rule)
            if reason:
                return Rejection(rule, root, "check", reason, node)
    if "" not in root.graph.opset_imports and not all(node.domain for node in match.nodes):
        reason = "the model does not say which opset of the standard operators it uses"
        return Rejection(rule, root, "check", reason, root)
    return None


def _object_to_member(node: Node, rule: Rule) -> str:
    """Say why *node* cannot go into a function; "" if it can, or if *rule* is to replace it."""
    if not isinstance(rule, PatternRule):
        return ""
    if node.subgraphs:
        return f"{node.label!r} has a body of its own, which a function cannot take along"
    if node.overload:
        return f"{node.label!r} calls an overload, which onnxruntime does not find in a function"
    if is_leaf_call(node, rule):
        return f"{node.label!r} calls a function that a partition wrote"
    value = _ambiguous_input(node)
    if value is not None:
        return f"{node.label!r} reads {value.name!r}, which is the name of two values there"
    return ""


def _ambiguous_input(node: Node) -> Value | None:
    """Return what *node*, in a body, reads by a name that another value has inside or round it.

    The standard forbids such names, and runtimes differ in which value they take. What a value is
    a copy of counts as well, since that is what a call reads.
    """
    read = [value for value in node.inputs if value is not None]
    read += [origin for value in read if (origin := behind_identities(value)) is not value]
    graph: Graph | None = node.graph if node.graph.owner is not None else None
    while graph is not None:
        for value in read:
            if graph.values.get(value.name, value) is not value:
                return value
        graph = None if graph.owner is None else graph.owner.graph
    return None


def escaping_values(match: Match, taken: Taken) -> list[Value]:
    """Return the values made inside *match* that something outside reads, outputs excepted.

    A function may return all that the nodes of the outputs make; a replacement makes the outputs
    alone.
    """
    members = set(match.nodes)
    roots = match.roots if isinstance(match.rule, PatternRule) else ()
    return [
        output
        for node in match.nodes
        if node not in roots
        for output in node.outputs
        if output is not None
        and _is_read_outside(output, members, taken)
        and output not in match.outputs
    ]


def _is_read_outside(value: Value, members: AbstractSet[Node], taken: Taken) -> bool:
    if value.returned_by:
        return True
    for user, _ in value.iter_uses():
        if taken.copying and any(other.root not in members for other in taken.readers(value, user)):
            return True
        if user in members or _has_own_copy(taken.claimed.get(user), value):
            continue
        if enclosing_node(user, value.graph) not in members:
            return True
    return False


def _has_own_copy(owner: Match | None, value: Value) -> bool:
    """Tell whether what reads *value* is in a match that computes it again by itself."""
    return owner is not None and owner.rule.escape == "duplicate" and value.producer in owner.nodes


def describe_escape(value: Value, nodes: Iterable[Node], taken: Taken | None = None) -> str:
    """Say who reads *value* besides *nodes*."""
    if value.is_graph_output:
        return f"{value.name!r} is a graph output"
    members = set(nodes)
    readers = list(users(value))
    outside = next((user for user in readers if user not in members), None)
    if outside is not None:
        return f"{value.name!r} is also read by {outside.op_type} {outside.label!r}"
    assert taken is not None  # noqa: S101  # somebody reads it
    user, other = next((user, match) for user in readers for match in taken.readers(value, user))
    return (
        f"{value.name!r} is also read by the match of {other.rule.qualified_name} at "
        f"{other.root.label!r}, which computes {user.label!r} again"
    )


def _object_to_escape(match: Match, escaping: Sequence[Value], taken: Taken) -> Rejection | None:
    if match.rule.escape == "refuse":
        return _escape(match, escaping[0], describe_escape(escaping[0], match.nodes, taken))
    if match.rule.escape == "duplicate":
        for value in escaping:
            if not _leads_into(value, match, taken):
                who = describe_escape(value, match.nodes, taken)
                return _escape(match, value, f"{who}, which does not lead to the root")
        for node in needed_within(match.nodes, escaping):
            if draws_random(node):
                reason = f"{node.label!r} draws random numbers, which would be drawn twice"
                return Rejection(match.rule, match.root, "escape", reason, node)
    return None


def _object_to_facts(match: Match) -> Rejection | None:
    for condition in match.rule.where:
        reason = condition.reason_against(match.bindings)
        if reason:
            return Rejection(match.rule, match.root, "where", reason, match.root)
    return None if match.rule.check is None else _checked(match, match.rule.check)


def _checked(match: Match, check: Check) -> Rejection | None:
    """Ask the rule's own function.

    Raises:
        PassError: It fails, or answers with something else than it may.
    """
    label = f"the check of the rule {match.rule.qualified_name!r}"
    where = f"at {match.root.op_type} {match.root.label!r}"
    try:
        answer = check(match)
    except DplError:
        raise
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())
        raise PassError(f"{label} failed {where} with {type(error).__name__}: {reason}") from error
    if answer is None or isinstance(answer, Rejection):
        return answer
    raise PassError(
        f"{label} answered {answer!r} {where}", hint="return None, or match.reject(reason)"
    )


def _escape(match: Match, value: Value, reason: str) -> Rejection:
    return Rejection(match.rule, match.root, "escape", reason, value)


def _leads_into(value: Value, match: Match, taken: Taken) -> bool:
    """Tell whether what reads *value* outside only serves the match: Relay's dominated case."""
    members = set(match.nodes)
    last = match.nodes[-1].position
    if value.returned_by:
        return False
    readers = list(users(value))
    pending = [
        user
        for user in readers
        if user not in members and not _has_own_copy(taken.claimed.get(user), value)
    ]
    pending += [other.root for user in readers for other in taken.readers(value, user)]
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in seen or node in members:
            continue
        seen.add(node)
        made = [output for output in node.outputs if output is not None]
        readers = [user for output in made for user in users(output)]
        if node.position > last or not readers or any(output.returned_by for output in made):
            return False
        pending += [user for user in readers if user not in members]
    return True


def is_wide(match: Match) -> bool:
    """Tell whether values leave *match* from elsewhere than its last node.

    Only such matches can form a cycle with the rest: in others every node leads to the one that
    values leave from.
    """
    last = match.nodes[-1]
    if len(match.outputs) == 1 and not match.escaping:
        return match.root is not last
    return any(value.producer is not last for value in leaving_values(match))


def leaving_values(match: Match) -> list[Value]:
    """Return the values that a call in the place of *match* would make."""
    made = [value for root in match.roots for value in root.outputs if value is not None]
    return made + list(match.escaping if match.rule.escape == "outputs" else ())


def _object_to_shape(match: Match, contracted: Mapping[Node, Sequence[Value]]) -> Rejection | None:
    """Refuse a match that would form a cycle with the rest of its graph, or with other matches."""
    if not is_wide(match):
        return None
    outside = path_through_outside(match.nodes, leaving_values(match), contracted)
    if outside is None:
        return None
    reason = f"{outside.label!r} lies outside but between two nodes of the match"
    return Rejection(match.rule, match.root, "convexity", reason, outside)


def replaced_nodes(match: Match) -> Sequence[Node]:
    """Return the nodes that a call takes the place of: all but those that others still need."""
    if not match.escaping or match.rule.escape != "duplicate":
        return match.nodes
    needed = needed_within(match.nodes, match.escaping)
    return [node for node in match.nodes if node not in needed]
