"""Which matches of a list of rules are taken, why others are not, and how much they cover."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from dplcli.errors import DplError, PassError, counted
from dplcli.ir.model import called_function, callers_first, calls_in
from dplcli.ir.operators import DEQUANTIZING, draws_random, flops, kind_of
from dplcli.ir.traversal import (
    behind_identities,
    bodies_of,
    captured_values,
    enclosing_node,
    is_read,
    needed_within,
    outwards,
    path_through_outside,
    users,
)
from dplcli.keys import keys
from dplcli.language.conditions import UnknownFactError
from dplcli.language.explain import Explainer
from dplcli.language.matcher import Fingerprints, OpIndexes, StepBudgetExceededError
from dplcli.language.pattern import (
    CallPattern,
    FunctionName,
    FunctionPattern,
    OpKind,
    OpName,
    all_parts,
)
from dplcli.language.replacement import (
    BuildError,
    Draft,
    RewriteRule,
    as_attribute,
    draft_replacement,
)
from dplcli.language.rule import Match, PatternRule, Rejection, by_priority, read_match
from dplcli.passes.records import call_of_written, is_constant_node, is_for_target, is_written
from dplcli.passes.rewriter import object_to_devices

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from dplcli.ir import Attribute, Function, Graph, Model, Node, Shape, TensorType, Value
    from dplcli.ir.operators import Shapes
    from dplcli.language.matcher import Program
    from dplcli.language.rule import Check, Outlook, Rule, Stage


# Calls of functions that a partition wrote: leaves, to rules that do not name them.


def _names(rule: Rule, function: Function) -> bool:
    """Tell whether the pattern of *rule* asks for *function* by name or by metadata."""
    for callee in _callees(rule):
        match callee:
            case OpName(op_type, domain) if (domain, op_type) == (function.domain, function.name):
                return True
            case FunctionName(name) if name and callee.accepts(function.domain, function.name):
                return True
            case FunctionPattern() if callee.metadata:
                return True
    return False


# Whether a match may be taken: overlap, escaping values, conditions, convexity.


@dataclass
class Taken:
    """What a further match must know of the matches taken so far.

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
        self.claimed.update(dict.fromkeys(replaced, match))
        for node in replaced:
            if node.subgraphs:
                self.claimed.update(_taken_along([match]))
        if len(replaced) < len(match.nodes):
            for node in set(match.nodes).difference(replaced):
                self.copying.setdefault(node, []).append(match)
        if is_wide(match):
            outputs = leaving_values(match)
            of_graph = self.contracted.setdefault(match.root.graph, {})
            of_graph.update((node, outputs) for node in match.nodes)

    def readers(self, value: Value, user: Node) -> list[Match]:
        """Return the matches that copy *user* but not what makes *value*: their calls read it."""
        copying = self.copying.get(user, ())
        return [match for match in copying if value.producer not in match.nodes]


_NOTHING_TAKEN = Taken()


def judge(
    match: Match, taken: Taken | None = None, absorbed: Sequence[Match] = ()
) -> Match | Rejection:
    """Return *match* as it may be taken, or why it must be refused.

    Args:
        match: What was found.
        taken: The matches taken before.
        absorbed: Those of them that it takes the place of.
    """
    taken = taken or _NOTHING_TAKEN
    if isinstance(match.rule, RewriteRule) and not any(map(is_read, match.outputs)):
        return Rejection(match.rule, match.root, "check", "nobody reads what it makes", match.root)
    objection = _object_to_nodes(match, taken.claimed, absorbed)
    if objection is not None:
        return objection
    # The values made inside *match* that something outside reads, outputs excepted.
    nodes = match.nodes
    members: Collection[Node] = nodes if len(nodes) < _FEW else set(nodes)
    roots = match.roots if isinstance(match.rule, PatternRule) else ()
    escaping = [
        output
        for node in nodes
        if node not in roots
        for output in node.outputs
        if output is not None
        and _is_read_outside(output, members, taken)
        and output not in match.outputs
    ]
    if escaping:
        objection = _object_to_escape(match, escaping, taken)
        match = match.with_escaping(tuple(escaping))
    rule = match.rule
    if objection is None and (rule.where or rule.check is not None or rule.computed):
        objection = _object_to_facts(match)
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
            reason += owner.rule.outranking(rule).removesuffix(",")
            return Rejection(rule, root, "overlap", reason, node)
        if is_inner or node.domain or node.subgraphs:
            reason = _object_to_member(node, rule, claimed)
            if reason:
                return Rejection(rule, root, "check", reason, node)
    if root.graph.model.is_spread:
        inner = [node for node, _ in _taken_along([match])]
        if (apart := object_to_devices([*match.nodes, *inner])) is not None:
            return Rejection(rule, root, "check", *apart)
    if "" not in root.graph.opset_imports and not all(node.domain for node in match.nodes):
        reason = "the model does not say which opset of the standard operators it uses"
        return Rejection(rule, root, "check", reason, root)
    return None


def _object_to_callee(node: Node, rule: Rule) -> str:
    """Say why a function cannot have what *node* calls; "" if it can."""
    if node.overload:
        return f"{node.label!r} calls an overload, which onnxruntime does not find in a function"
    # Whether *node* calls a function that a partition wrote and *rule* does not name.
    function = call_of_written(node)
    if function is not None and not _names(rule, function):
        return f"{node.label!r} calls a function that a partition wrote"
    return ""


def _object_to_member(node: Node, rule: Rule, claimed: Mapping[Node, Match]) -> str:
    """Say why *node* cannot go into a function; "" if it can, or if *rule* is to replace it."""
    if not isinstance(rule, PatternRule):
        return ""
    reason = _object_to_callee(node, rule) or _object_to_bodies(node, rule, claimed)
    if reason:
        return reason
    # What *node*, in a body, reads by a name that another value has inside or round it.
    read = [*node.read, *captured_values(node)]
    read += [origin for value in read if (origin := behind_identities(value)) is not value]
    graphs = outwards(node.graph) if node.graph.owner is not None else ()
    value = next(
        (v for graph in graphs for v in read if graph.values.get(v.name, v) is not v), None
    )
    if value is not None:
        return f"{node.label!r} reads {value.name!r}, which is the name of two values there"
    return ""


def _object_to_bodies(node: Node, rule: Rule, claimed: Mapping[Node, Match]) -> str:
    """Say why the bodies of *node* cannot go into a function; "" if they can."""
    for body in bodies_of(node):
        if body.annotations:
            return f"a body of {node.label!r} says how values are quantised"
        passed = [v.name for v in body.outputs if v.graph is not body or v.producer is None]
        if passed:  # onnx's inliner renames it in one place only
            return f"a body of {node.label!r} returns {passed[0]!r}, which no node in it makes"
        for inner in body:
            reason = _object_to_callee(inner, rule)
            if inner in claimed:
                rule_of_other = claimed[inner].rule.qualified_name
                reason = f"{inner.label!r} is in another match, of {rule_of_other}"
            elif inner.has_references:
                reason = f"{inner.label!r} has an attribute that callers of a function give"
            if reason:
                return f"{reason}; it is in a body of {node.label!r}"
    captured = dict.fromkeys(captured_values(node))
    copies_of = {behind_identities(value): value for value in captured}
    for value in captured:
        other = copies_of[behind_identities(value)]
        if other is not value:
            return f"the bodies of {node.label!r} read {value.name!r} and {other.name!r}, a copy"
    return ""


_FEW = 8
"""Up to so many nodes are soon looked for one by one."""


def _is_read_outside(value: Value, members: Collection[Node], taken: Taken) -> bool:
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
    return owner is not None and copies(owner) and value.producer in owner.nodes


def describe_escape(value: Value, nodes: Iterable[Node], taken: Taken | None = None) -> str:
    """Say who reads *value* besides *nodes*."""
    if value.is_graph_output:
        return f"{value.name!r} is a graph output"
    if value.holder:
        return f"{value.name!r} is named by {value.holder}"
    members = set(nodes)
    readers = list(users(value))
    if outside := [user for user in readers if user not in members]:
        first, *others = outside
        more = f" and {counted(len(others), 'other node')}" if others else ""
        return f"{value.name!r} is also read by {first.op_type} {first.label!r}{more}"
    assert taken is not None  # noqa: S101  # somebody reads it
    user, other = next((user, match) for user in readers for match in taken.readers(value, user))
    return (
        f"{value.name!r} is also read by the match of {other.rule.qualified_name} at "
        f"{other.root.label!r}, which computes {user.label!r} again"
    )


def copies(match: Match) -> bool:
    """Tell whether nodes of *match* that are needed outside stay there and are computed again."""
    return match.rule.escape == "duplicate" or (
        bool(match.escaping) and _are_cheap(match, match.escaping)
    )


def _are_cheap(match: Match, escaping: Sequence[Value]) -> bool:
    """Tell whether what makes inner values only dequantises, so that anybody may do it again."""
    return (
        match.rule.escape == "refuse"
        and isinstance(match.rule, PatternRule)
        and all(
            not node.domain and node.op_type in DEQUANTIZING
            for node in needed_within(match.nodes, escaping)
        )
    )


def _object_to_escape(match: Match, escaping: Sequence[Value], taken: Taken) -> Rejection | None:
    if _are_cheap(match, escaping):
        return None
    if match.rule.escape == "refuse":
        reason = describe_escape(escaping[0], match.nodes, taken)
        if isinstance(match.rule, RewriteRule):
            reason += "; with `escape: keep` the rule replaces the rest"
        return _escape(match, escaping[0], reason)
    if match.rule.escape == "keep":
        return _object_to_kept(match, escaping, taken)
    if match.rule.escape == "duplicate":
        for value in escaping:
            if not _leads_into(value, match, taken):
                who = describe_escape(value, match.nodes, taken)
                return _escape(match, value, f"{who}, which does not lead to the root")
        return _object_to_random(match, needed_within(match.nodes, escaping))
    return None


def _object_to_kept(match: Match, escaping: Sequence[Value], taken: Taken) -> Rejection | None:
    """Refuse to keep a node that makes an output, too, and one that draws other numbers anew."""
    kept = needed_within(match.nodes, escaping)
    for value in escaping:
        if any(output.producer in kept for output in match.outputs):
            reason = f"{describe_escape(value, match.nodes, taken)}, and needs what is replaced"
            return _escape(match, value, reason)
    return _object_to_random(match, kept)


def _object_to_random(match: Match, nodes: Iterable[Node]) -> Rejection | None:
    """Refuse to compute again what comes out otherwise each time."""
    node = next(filter(draws_random, nodes), None)
    if node is None:
        return None
    reason = f"{node.label!r} draws random numbers, which would be drawn twice"
    return Rejection(match.rule, match.root, "escape", reason, node)


def _object_to_facts(match: Match) -> Rejection | None:
    for condition in match.rule.where:
        unmet = condition.unmet_by(match.bound)
        if unmet is not None:
            held = [value for value in match.bindings.values() if value.holder]
            held_by = [f"{value.name!r} is named by {value.holder}" for value in held]
            reason = "; ".join([unmet.reason, *dict.fromkeys(held_by)])
            is_open = unmet.is_open or bool(held)
            found = (reason, match.root, unmet.unranked, condition, match.bound, is_open)
            return Rejection(match.rule, match.root, "where", *found)
    try:
        computed_attributes(match)
    except (UnknownFactError, ValueError, BuildError) as error:
        return Rejection(match.rule, match.root, "where", str(error), match.root)
    return None if match.rule.check is None else _checked(match, match.rule.check)


def computed_attributes(match: Match) -> dict[str, Attribute]:
    """Return the attributes that the rule of *match* computes for the call.

    Raises:
        UnknownFactError: One needs something that is not known.
        ValueError: One cannot be evaluated.
        BuildError: No attribute can hold one.
    """
    computed = {}
    for name, expression in match.rule.computed.items():
        try:
            computed[name] = as_attribute(expression.value(match.bound), name)
        except UnknownFactError as error:
            raise UnknownFactError(f"attrs: {name} is not known: {error}") from error
        except ValueError as error:
            raise ValueError(f"attrs: {name} cannot be evaluated: {error}") from error
    return computed


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
        outputs = node.made
        readers = [user for output in outputs for user in users(output)]
        if node.position > last or not readers or any(output.returned_by for output in outputs):
            return False
        pending += [user for user in readers if user not in members]
    return True


def is_wide(match: Match) -> bool:
    """Tell whether a node other than the last one makes a value that leaves *match*.

    Only such matches can form a cycle with the rest. In others every node leads to the last one.
    """
    last = match.nodes[-1]
    if len(match.outputs) == 1 and not match.escaping:
        return match.root is not last
    return any(value.producer is not last for value in leaving_values(match))


def leaving_values(match: Match) -> list[Value]:
    """Return the values that a call in the place of *match* would make."""
    outputs = [value for root in match.roots for value in root.made]
    return outputs + list(match.escaping if match.rule.escape == "outputs" else ())


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
    if not match.escaping or not copies(match):
        return match.nodes
    needed = needed_within(match.nodes, match.escaping)
    return [node for node in match.nodes if node not in needed]


# Decide which matches of a list of rules are taken, and say why the others are not.
#
# Each rule is tried over the whole model, in listed order, so earlier ones win. Within a rule,
# consumers come before producers (Relay's ``pattern.partition``), or producers come first and are
# absorbed (Relax's ``FuseOpsByPattern``), as the rule says. A match that is refused leaves its
# nodes free; other ways to match at the same root are tried before the root is given up.


_MANY_RULES = 24


@dataclass
class Selection:
    """What the rules found.

    Attributes:
        matches: The matches taken; a node that several may compute again is in several.
        refused: The first attempt of each rule at every root where its pattern fits but was
            refused, unless another match took the root.
        totals: How many nodes of each operator were looked at.
        rules: The rules that were tried.
        candidates: By rule, at how many nodes its pattern was tried; nothing if that was done in
            batches.
        outlined: How many nodes of each operator are calls of what dpl outlined before.
    """

    rules: tuple[Rule, ...] = ()
    matches: Sequence[Match] = field(default_factory=list)
    refused: list[Rejection] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    candidates: dict[str, int] = field(default_factory=dict)
    outlined: dict[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many matches of each rule were taken, of those that have any."""
        return Counter(match.rule.qualified_name for match in self.matches)

    @property
    def ordered(self) -> list[Match]:
        """The matches taken, in program order."""
        return in_program_order(self.matches)

    @property
    def covered(self) -> Mapping[str, int]:
        """How many nodes of each operator are in matches or are calls of earlier ones.

        Each counts once, in however many functions it is computed. A Constant is data: it does not
        count, here and in :attr:`counted`.
        """
        nodes = {node for match in self.matches for node in match.nodes}
        nodes.update(node for node, _ in _taken_along(self.matches))
        counts = Counter(node.qualified_op for node in nodes)
        return _without_constants({**counts, **self.outlined})

    @property
    def counted(self) -> Mapping[str, int]:
        """How many nodes of each operator there are."""
        return _without_constants(self.totals)

    @property
    def share(self) -> tuple[int, int]:
        """How many nodes are in matches or are calls of earlier ones, of how many."""
        return sum(self.covered.values()), sum(self.counted.values())


def _without_constants(counts: Mapping[str, int]) -> Mapping[str, int]:
    return {op: count for op, count in sorted(counts.items()) if op != "Constant"}


def _taken_along(matches: Iterable[Match]) -> Iterator[tuple[Node, Match]]:
    """Iterate over the nodes of bodies that go into functions, each with its match."""
    for match in matches:
        if isinstance(match.rule, PatternRule):
            for node in match.nodes:
                if node.subgraphs:
                    yield from ((inner, match) for body in bodies_of(node) for inner in body)


def select_matches(model: Model, rules: Sequence[Rule]) -> Selection:
    """Match *rules* against every graph of *model*; nothing is edited."""
    selection = Selection(rules=tuple(rules))
    indexes = OpIndexes(matchable_graphs(model))
    for index in indexes.all:
        for (domain, op_type), count in index.counts.items():
            op = f"{domain}.{op_type}" if domain else op_type
            selection.totals[op] = selection.totals.get(op, 0) + count
            function = model.functions.get((domain, op_type, ""))
            if function is not None and is_written(function) and is_for_target(function):
                selection.outlined[op] = selection.totals[op]
    selector = _Selector(selection)
    by_edges = len(rules) >= _MANY_RULES
    for rule in by_priority(rules):
        selection.candidates[rule.qualified_name] = 0
        for index in indexes.within(rule.demand):
            if rule.holds_for(index.graph):
                roots = index.candidates(rule.demand, by_edges=by_edges)
                selector.select(rule, roots)
    selector.try_again()
    claimed = selector.taken.claimed
    selection.refused = [item for item in selection.refused if item.root not in claimed]
    selection.matches = [match for match in selector.matches if id(match) not in selector.absorbed]
    return selection


def explain_rules(model: Model, rules: Sequence[Rule]) -> Explainer:
    """Match *rules*, all of a run since earlier ones take nodes from later ones, and explain."""
    selection = select_matches(model, rules)
    return Explainer(matchable_graphs(model), selection.matches, selection.refused)


def in_program_order(matches: Iterable[Match]) -> list[Match]:
    """Sort matches by their roots: graph by graph, in topological order."""
    matches = list(matches)
    if not matches:
        return []
    ranks = {graph: rank for rank, graph in enumerate(matches[0].root.graph.model.graphs())}
    return sorted(matches, key=lambda match: (ranks[match.root.graph], match.root.position))


def matchable_graphs(model: Model) -> list[Graph]:
    """Return every graph but those in functions that a partition or a merge wrote."""
    kept = [f.body for f in model.functions.values() if not is_written(f)]
    return [graph for body in (model.graph, *kept) for graph in body.and_inner()]


_POSITION = attrgetter("position")
_FINGERPRINT_DEPTH = 3
"""How many nodes above one another tell where a rule can match: most patterns are no deeper."""


class _Selector:
    """Takes matches of one rule after the other.

    Args:
        selection: What was found.
    """

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.matches: list[Match] = []
        self.taken = Taken()
        self.absorbed: set[int] = set()
        self.fingerprints = Fingerprints(_FINGERPRINT_DEPTH)
        # many rules have the same roots; they are kept, so that no others get their identity
        self._grouped: dict[int, tuple[Sequence[Node], dict[int, list[Node]]]] = {}

    def select(self, rule: Rule, roots: Sequence[Node]) -> None:
        self.selection.candidates[rule.qualified_name] += len(roots)
        absorbs = rule.order == "program"
        claimed = self.taken.claimed
        hopeful = self._hopeful(roots, rule.matcher.program)
        for root in hopeful if rule.producers_first else hopeful[::-1]:
            if absorbs or root not in claimed:
                refused = self._select_at(root, rule)
                if refused is not None:
                    self.selection.refused.append(refused)

    def _hopeful(self, roots: Sequence[Node], program: Program) -> Sequence[Node]:
        """Return those of *roots* at which *program* may match, in their order."""
        if id(roots) not in self._grouped:
            groups: dict[int, list[Node]] = {}
            for root in roots:
                groups.setdefault(self.fingerprints.number(root), []).append(root)
            self._grouped[id(roots)] = roots, groups
        _, groups = self._grouped[id(roots)]
        hopeful = [nodes for n, nodes in groups.items() if self.fingerprints.may_hold(n, program)]
        if len(hopeful) > 1:
            return sorted(chain.from_iterable(hopeful), key=_POSITION)
        return hopeful[0] if hopeful else ()

    def try_again(self) -> None:
        """Try what was refused again, as long as that finds something.

        Where a match computes a node again by itself, what that node reads has fewer readers in
        the end than when an earlier root was looked at.
        """
        found = -1
        while self.taken.copying and found < len(self.matches):
            found = len(self.matches)
            for item in self.selection.refused:
                if item.stage != "budget" and item.root not in self.taken.claimed:
                    self._select_at(item.root, item.rule)

    def _select_at(self, root: Node, rule: Rule) -> Rejection | None:
        """Take the first match at *root* that may be taken; if none may, say why."""
        first: Rejection | None = None
        try:
            claimed = self.taken.claimed
            for state in rule.matcher.solutions(root, () if rule.order == "program" else claimed):
                match = read_match(rule, root, state)
                if match is None:
                    continue
                inside = _contained(match, claimed) if rule.order == "program" else ()
                verdict = judge(match, self.taken, inside)
                if isinstance(rule, RewriteRule) and isinstance(verdict, Match):
                    verdict = _object_to_replacement(verdict, rule) or verdict
                if isinstance(verdict, Match):
                    self.absorbed.update(id(smaller) for smaller in inside)
                    self.taken.add(verdict, inside)
                    self.matches.append(verdict)
                    return None
                first = first or verdict
        except StepBudgetExceededError as error:
            first = Rejection(rule, root, "budget", error.message, root)
        return first


def _object_to_replacement(match: Match, rule: RewriteRule) -> Rejection | None:
    """Say why nothing can take the place of *match*."""
    draft = draft_replacement(match, rule.instance())
    if isinstance(draft, Draft):
        return None
    return match.reject("the rule's function leaves it") if draft is None else draft


def _contained(match: Match, claimed: Mapping[Node, Match]) -> list[Match]:
    """Return the earlier matches of the same rule that *match* contains whole and outgrows."""
    members = set(match.nodes)
    touched = {
        id(smaller): smaller for node in match.nodes if (smaller := claimed.get(node)) is not None
    }
    return [
        smaller
        for smaller in touched.values()
        if smaller.rule is match.rule
        and len(smaller.nodes) < len(members)
        and members.issuperset(smaller.nodes)
    ]


# How much of a model's work is inside matches, and what was left out and why.


NO_RULE = "no rule has this operator"
NO_ROOT = "no rule is rooted at this operator"
NO_FIT = "no rule fits here"
REPEATED = "dpl does not look into the repeated block that it stands for"


@dataclass
class Work:
    """Some nodes, and what they compute.

    Attributes:
        nodes: How many they are.
        flops: Floating-point operations of those whose cost is known.
        unknown: How many have a cost that is not known.
    """

    nodes: int = 0
    flops: int = 0
    unknown: int = 0

    def add(self, cost: int | None, count: int = 1) -> None:
        """Count more nodes that cost the same."""
        self.nodes += count
        if cost is None:
            self.unknown += count
        else:
            self.flops += cost * count


@keys("covered=inside.flops of=whole.flops unknown.covered=inside.unknown unknown.of=whole.unknown")
class Share(NamedTuple):
    """How much of the whole lies inside matches.

    Attributes:
        inside: The part inside.
        whole: All of it.
    """

    inside: Work
    whole: Work

    def add(self, cost: int | None, count: int, *, is_inside: bool) -> None:
        """Count more nodes that cost the same."""
        for work in (self.whole, self.inside) if is_inside else (self.whole,):
            work.add(cost, count)


@keys("op *=work rule stage reason")
@dataclass(frozen=True)
class LeftOut:
    """Nodes of one operator that were left out for one reason.

    Attributes:
        op: The operator.
        reason: Why, in one sentence; of several refusals, that of the one nearest to a match.
        rule: The rule that refused them, or "".
        stage: The stage at which it did, or "".
        work: The nodes.
        outlook: Whether a reader can do something about it.
    """

    op: str
    reason: str
    rule: str
    stage: str
    work: Work
    outlook: Outlook = "open"


@keys("flops=total symbols sizes.given=given_sizes sizes.chosen=chosen_sizes by_target left_out")
@dataclass(frozen=True)
class Coverage:
    """How much of a model is inside matches.

    Attributes:
        total: All nodes.
        by_op: The nodes by operator.
        by_target: What is inside, by target.
        left_out: What is not, biggest first.
        symbols: The dimensions of inputs that are not known, on which unknown costs depend.
        problem: Why shape inference found nothing, or not all, or "".
        sizes: The dimensions of inputs that were counted with.
        chosen: Those of them that the check chose because nobody gave them.
    """

    total: Share
    by_op: Mapping[str, Share]
    by_target: Mapping[str, Work]
    left_out: tuple[LeftOut, ...]
    symbols: tuple[str, ...] = ()
    problem: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()

    @property
    def given_sizes(self) -> Mapping[str, int]:
        """The sizes that somebody gave."""
        return {name: size for name, size in self.sizes.items() if name not in self.chosen}

    @property
    def chosen_sizes(self) -> Mapping[str, int]:
        """The sizes that the check chose."""
        return {name: self.sizes[name] for name in self.chosen}


class GapCause(NamedTuple):
    """Why a node was left out.

    Attributes:
        rule: The rule that refused it, or "".
        stage: The stage at which it did, or "".
        reason: Why, in one sentence.
        outlook: Whether a reader can do something about it.
    """

    rule: str
    stage: str
    reason: str
    outlook: Outlook = "open"


_NEARER: Sequence[Stage] = ("budget", "where", "overlap", "check", "escape", "convexity", "prune")
"""The stages at which matches are refused, those last that leave least to be wanted."""


def nearness(item: Rejection) -> tuple[int, int]:
    """Return how near a refused match came: the stage, and how many conditions held."""
    conditions = item.rule.where
    held = conditions.index(item.condition) if item.condition in conditions else 0
    return _NEARER.index(item.stage), held


def fates(model: Model, selection: Selection) -> list[str | GapCause]:
    """Say which target each node of *model* goes to, or why none; ask before they are outlined.

    Returns:
        One item for each node that :func:`measure` counts, in its order.
    """
    targets = {node: found.rule.target for found in selection.matches for node in found.nodes}
    targets |= {node: match.rule.target for node, match in _taken_along(selection.matches)}
    refused: dict[Node, Rejection] = {}
    for item in selection.refused:
        refused[item.root] = max(refused.get(item.root, item), item, key=nearness)
    mentions = Mentions(selection.rules)
    no_rule: dict[tuple[str, str, str], GapCause] = {}
    found: list[str | GapCause] = []
    for node in _counted(matchable_graphs(model)):
        target = targets.get(node)
        if target is None:
            # The target that a call was outlined for before; None if *node* is no such call.
            function = call_of_written(node)
            target = function.domain if function is not None and is_for_target(function) else None
        if target is not None:
            found.append(target)
        elif (refusal := refused.get(node)) is not None:
            rule, stage = refusal.rule.qualified_name, refusal.stage
            found.append(GapCause(rule, stage, refusal.reason, refusal.outlook))
        else:
            key = (node.domain, node.op_type, node.overload)
            if key not in no_rule:
                no_rule[key] = GapCause("", "", mentions.reason(node))
            found.append(no_rule[key])
    return found


def _counted(graphs: Iterable[Graph]) -> Iterator[Node]:
    """Iterate over the nodes that do something: a Constant is data that stands in a node."""
    return (node for graph in graphs for node in graph if not is_constant_node(node))


def measure(
    model: Model,
    outcome: Iterable[str | GapCause],
    types: Mapping[Value, TensorType],
    symbols: tuple[str, ...] = (),
) -> Coverage:
    """Say how much of *model* is inside matches.

    Args:
        model: The model that was matched, or the same one read again.
        outcome: What became of each node (:func:`fates`).
        types: What is known of types beside what values state themselves.
        symbols: The dimensions of inputs whose sizes are not known.
    """

    def shape_of(value: Value) -> Shape | None:
        kind = types.get(value)
        if kind is None:
            kind = value.known_type() if model.kinds else value.declared_type
        return None if kind is None else kind.shape

    alike: dict[tuple[str, str, str | GapCause, int | None], int] = {}
    graphs = matchable_graphs(model)
    # Count how often each outermost graph is run for once through *model*, by calls.
    runs = dict.fromkeys([function.body for function in model.functions.values()], 0)
    runs[model.graph] = 1
    calls = calls_in(model)
    for function in callers_first(calls):
        runs[function.body] = sum(runs[_outermost(node.graph)] for node in calls[function])
    times = {graph: runs[_outermost(graph)] for graph in graphs}
    costs = _Costs(shape_of, types, set(graphs))
    for node, fate in zip(_counted(graphs), outcome, strict=True):
        cost = costs.of(node)
        cost = None if cost is None else cost * times[node.graph]
        key = (node.domain, node.op_type, fate, cost)
        alike[key] = alike.get(key, 0) + 1
    return covered(alike, symbols)


def covered(
    alike: Mapping[tuple[str, str, str | GapCause, int | None], int], symbols: tuple[str, ...]
) -> Coverage:
    """Add up how much is inside matches.

    Args:
        alike: How many nodes there are by domain, operator, fate and cost, in program order.
        symbols: The dimensions of inputs whose sizes are not known.
    """
    total = Share(Work(), Work())
    by_op: dict[str, Share] = {}
    by_target: dict[str, Work] = {}
    left_out: dict[tuple[str, ...], LeftOut] = {}
    for (domain, op_type, fate, cost), count in alike.items():
        op = f"{domain}.{op_type}" if domain else op_type
        for share in (total, by_op.setdefault(op, Share(Work(), Work()))):
            share.add(cost, count, is_inside=isinstance(fate, str))
        if isinstance(fate, str):
            by_target.setdefault(fate, Work()).add(cost, count)
            continue
        # of several refusals by one rule the first speaks for all
        rule, stage, reason, outlook = fate
        first = LeftOut(op, reason, rule, stage, Work(), outlook)
        cause = (op, rule, stage, "" if rule else reason)
        left_out.setdefault(cause, first).work.add(cost, count)
    left = sorted(left_out.values(), key=partial(_weight, by_nodes=bool(symbols)))
    return Coverage(total, by_op, dict(sorted(by_target.items())), tuple(left), symbols)


def _outermost(graph: Graph) -> Graph:
    *_, outermost = outwards(graph)
    return outermost


@dataclass
class _Costs:
    """Estimates what nodes compute, once for all that are alike.

    Attributes:
        shapes: Tells the shape of a value.
        types: What is known of types beside what values state themselves.
        graphs: The graphs that are counted; what a call costs is counted inside the function.
    """

    shapes: Shapes
    types: Mapping[Value, TensorType]
    graphs: Collection[Graph]
    _known: dict[tuple[object, ...], int | None] = field(default_factory=dict)

    def of(self, node: Node) -> int | None:
        """Return the cost of a node; None if it is not known."""
        model = node.graph.model
        function = called_function(node) if model.functions else None
        if function is not None and function.body in self.graphs:
            return 0
        kind = None if node.rewired else model.kinds.get(node)
        alike = self._key(node) if kind is None else (kind,)
        if alike not in self._known:
            self._known[alike] = flops(node, self.shapes)
        return self._known[alike]

    def _key(self, node: Node) -> tuple[object, ...]:
        # nodes share attributes, and values what is stated of their types
        key: list[object] = [node.op_type, node.domain, id(node.attributes), len(node.inputs)]
        key.append(id(node.graph.opset_imports))
        types = self.types
        for value in node.inputs + node.outputs:
            kind = value and (types.get(value) or value.type_source or value.declared_type)
            key.append(id(kind))
        return tuple(key)


def _weight(item: LeftOut, *, by_nodes: bool) -> tuple[object, ...]:
    """Order what is left out: by cost; where sizes are missing, heavy operators come first."""
    work = item.work
    sizes: tuple[object, ...] = (-work.flops, -work.unknown)
    if by_nodes:
        sizes = (kind_of(item.op) != "out-fusable", -work.unknown)
    return (*sizes, -work.nodes, item.op, item.rule, item.stage, item.reason)


class Mentions:
    """Which operators the rules are rooted at, and which they have anywhere.

    Args:
        rules: The rules.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.roots: set[tuple[str, str]] = set()
        self.names: set[tuple[str, str]] = set()
        self.kinds: set[str] = set()
        self.has_open_root = False
        for rule in rules:
            heads = rule.demand.heads
            self.has_open_root |= heads is None
            self.roots |= heads or set()
            for callee in _callees(rule):
                if isinstance(callee, OpName):
                    self.names.add((callee.domain, callee.op_type))
                elif isinstance(callee, OpKind):
                    self.kinds.add(callee.kind)

    def reason(self, node: Node) -> str:
        """Say why no rule took *node*, though none refused it."""
        key = (node.domain, node.op_type)
        if call_of_written(node) is not None:
            return REPEATED
        if key in self.roots or self.has_open_root:
            return NO_FIT
        of_kind = not node.domain and kind_of(node.op_type) in self.kinds
        return NO_ROOT if key in self.names or of_kind or "" in self.kinds else NO_RULE


def _callees(rule: Rule) -> Iterable[object]:
    for part in all_parts(rule.pattern):
        if isinstance(part, CallPattern):
            yield from part.op.choices
