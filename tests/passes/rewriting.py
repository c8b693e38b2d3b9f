"""Rewriting, watched: what must hold after every application of a rule, and at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dplcli.ir.model import FIRST_IR_WITH_PLAIN_INITIALIZERS, RULE_KEY
from dplcli.ir.traversal import check_structure
from dplcli.language import Condition, Rejection, RewriteRule
from dplcli.language.replacement import Draft, draft_replacement, parse_replacement, whole_node
from dplcli.language.rule import read_match
from dplcli.onnx_io import to_proto
from dplcli.passes.rewrite import (
    Change,
    ImportedFunctions,
    NewNames,
    Replacer,
    RestrictingObserver,
    Restriction,
    Rewriting,
    rewrite,
)
from dplcli.passes.rewriter import RewriteListener
from dplcli.passes.select import judge, matchable_graphs
from tests.support.helpers import (
    SCHEMAS,
    model_from_bytes,
    pattern_of,
    print_model,
    proto_from_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    import onnx

    from dplcli.ir import Model, Node, Value
    from dplcli.language.replacement import RewriteFunction
    from dplcli.language.rule import Match
    from dplcli.passes.rewrite import Application


def rewrite_rule(
    pattern: str,
    becomes: str | RewriteFunction,
    *where: str,
    name: str = "r",
    **settings: Any,  # noqa: ANN401  # further fields of RewriteRule
) -> RewriteRule:
    """Make a rule whose attributes nobody counts."""
    read = pattern_of(pattern)
    replacement: RewriteFunction
    replacement = parse_replacement(becomes, read, SCHEMAS) if isinstance(becomes, str) else becomes
    conditions = tuple(Condition(text) for text in where)
    return RewriteRule(name, read, replacement, where=conditions, **settings)


def bound(match: Match, name: str) -> Value:
    """Return what *name* is bound to."""
    value = match.value(name)
    assert value is not None
    return value


class Watched(RestrictingObserver):
    """Verifies the model whenever a rule has been applied."""

    def __init__(self, model: Model, **restrictions: Any) -> None:  # noqa: ANN401  # as RestrictingObserver
        """Watch *model*."""
        super().__init__(**restrictions)
        self.model = model

    def applied(self, application: Application) -> None:
        """Verify."""
        super().applied(application)
        try:
            check_structure(self.model)
        except Exception as error:
            error.add_note(f"after {facts_of(application)}\n{print_model(self.model)}")
            raise


@dataclass(frozen=True)
class Rewritten:
    """A model that was rewritten.

    Attributes:
        before: The model as it was.
        model: What became of it.
        after: The same, written.
        done: What was done.
    """

    before: onnx.ModelProto
    model: Model
    after: onnx.ModelProto
    done: Rewriting

    @property
    def text(self) -> str:
        """What :func:`print_model` prints, on one line."""
        return " ".join(print_model(self.model).split())

    @property
    def steps(self) -> list[tuple[str, str, str]]:
        """Rule, scope and root's output of every application."""
        return [(item.rule, item.scope, item.root.output) for item in self.done.applications]


def rewritten(
    before: str | onnx.ModelProto,
    rules: Sequence[RewriteRule],
    **restrictions: Any,  # noqa: ANN401  # as RestrictingObserver
) -> Rewritten:
    """Rewrite, and check what must hold of every result but the numbers.

    It is done twice. A restriction that concerns nothing changes nothing, except that every rule is
    tried in full at every root.
    """
    proto = proto_from_text(before) if isinstance(before, str) else before
    data = proto.SerializeToString(deterministic=True)
    model = model_from_bytes(data)
    done = rewrite(model, rules, Watched(model, **restrictions))
    check_structure(model)
    after = to_proto(model)
    written = after.SerializeToString(deterministic=True)
    assert len(done.applications) == sum(done.counts.values())
    assert bool(done.applications) == (done.rounds > 0)
    if not done.applications:
        assert written == data
    check_interface(proto, after)
    check_names(proto, after)
    check_leftovers(proto, after)
    again = model_from_bytes(data)
    assert print_model(model_from_bytes(written)) == print_model(model)
    skip = [*restrictions.pop("skip", ()), Restriction("nobody")]
    same = rewrite(again, rules, RestrictingObserver(skip=skip, **restrictions))
    assert list(map(facts_of, same.applications)) == list(map(facts_of, done.applications))
    assert list(map(_refusal, same.refused)) == list(map(_refusal, done.refused))
    assert to_proto(again).SerializeToString(deterministic=True) == written
    return Rewritten(proto, model, after, done)


def facts_of(item: Application) -> tuple[object, ...]:
    """Say all that an application tells."""
    return (item.number, item.round, item.rule, item.scope, item.root, item.removed, item.added)


def _refusal(item: Rejection) -> tuple[str, str, str, str]:
    return (item.rule.qualified_name, item.root.label, item.stage, item.reason)


def check_settled(result: Rewritten, rules: Sequence[RewriteRule]) -> None:
    """Check that nothing is left to do: here, in the file, and by trying every rule everywhere."""
    written = result.after.SerializeToString(deterministic=True)
    for model in (result.model, model_from_bytes(written)):
        again = rewrite(model, rules)
        found = list(map(facts_of, again.applications))
        assert not found, f"{found}\n{print_model(model)}"
        assert to_proto(model).SerializeToString(deterministic=True) == written
    lasting = [rule for rule in rules if not rule.once]
    assert applicable(result.model, lasting) is None, print_model(result.model)


def applicable(model: Model, rules: Sequence[RewriteRule]) -> str | None:
    """Try every rule at every node, in no clever order; say which one could be applied.

    The model is edited then.
    """
    for rule in rules:
        for graph in matchable_graphs(model):
            for node in graph if rule.holds_for(graph) else ():
                for match in _matches(rule, node):
                    if _is_replaced(match):
                        return f"{rule.name} at {node.label}"
    return None


def _matches(rule: RewriteRule, node: Node) -> Iterator[Match]:
    if rule.is_nodewise:
        if rule.heads is None or (node.domain, node.op_type) in rule.heads:
            alone = whole_node(rule, node)
            yield from () if alone is None else (alone,)
        return
    for state in rule.matcher.solutions(node):
        match = read_match(rule, node, state)
        verdict = None if match is None else judge(match)
        if verdict is not None and not isinstance(verdict, Rejection):
            yield verdict


def _is_replaced(match: Match) -> bool:
    assert isinstance(match.rule, RewriteRule)
    draft = draft_replacement(match, match.rule.instance())
    if not isinstance(draft, Draft):
        return False
    model = match.root.graph.model
    made = Replacer(
        match, draft, NewNames(model), ImportedFunctions(model), RewriteListener()
    ).replace()
    return isinstance(made, Change)


def check_interface(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Check that inputs and outputs keep their names, order and types.

    What is changed below IR version 4 is of version 4, where initializers are no inputs.
    """
    was_raised = before.ir_version < FIRST_IR_WITH_PLAIN_INITIALIZERS and after != before
    stored = {item.name for item in before.graph.initializer} if was_raised else ()
    assert list(after.graph.input) == [v for v in before.graph.input if v.name not in stored]
    assert list(after.graph.output) == list(before.graph.output)
    raised = FIRST_IR_WITH_PLAIN_INITIALIZERS if was_raised else before.ir_version
    assert after.ir_version == raised
    assert len(after.functions) >= len(before.functions)
    for old, new in zip(before.functions, after.functions, strict=False):
        assert (old.domain, old.name) == (new.domain, new.name)
        assert (old.input, old.output) == (new.input, new.output)


def check_names(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Check that no name is given twice that was not, and none that means something further out."""
    named = Counter(node.name for node in all_nodes(after) if node.name)
    was_named = Counter(node.name for node in all_nodes(before) if node.name)
    assert not [name for name, count in named.items() if count > max(was_named[name], 1)]
    _check_scope(after.graph, set())
    for function in after.functions:
        made = [*function.input, *(out for node in function.node for out in node.output if out)]
        assert len(made) == len(set(made))
        for body in _bodies(function.node):
            _check_scope(body, set(made))


def _check_scope(graph: onnx.GraphProto, outer: set[str]) -> None:
    inputs = [info.name for info in graph.input]
    stored = [item.name for item in graph.initializer if item.name not in inputs]
    made = [out for node in graph.node for out in node.output if out]
    names = inputs + stored + made
    assert len(names) == len(set(names)), Counter(names).most_common(1)
    assert not set(names) & outer
    for body in _bodies(graph.node):
        _check_scope(body, outer | set(names))


def _bodies(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of every graph and every function."""
    pending = [model.graph.node, *(function.node for function in model.functions)]
    while pending:
        nodes = pending.pop()
        yield from nodes
        pending += [body.node for body in _bodies(nodes)]


def check_leftovers(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Check what was not touched: as it was, and nothing that was read is now left unread."""
    known = {_identity(node): node for node in all_nodes(before)}
    for node in all_nodes(after):
        if any(item.key == RULE_KEY for item in node.metadata_props):
            continue
        old = known.get(_identity(node))
        if old is None:  # only what has no name can have been renamed
            assert not node.name
            continue
        assert list(node.metadata_props) == list(old.metadata_props)
        assert node.doc_string == old.doc_string
        if not any(attribute.HasField("g") for attribute in old.attribute):
            assert list(node.attribute) == list(old.attribute)
    for graph in (after.graph, *(body for node in all_nodes(after) for body in _bodies([node]))):
        made = {output for node in graph.node for output in node.output}
        made.update(item.name for item in graph.initializer)
        assert {info.name for info in graph.value_info} <= made
    for name in _unread(after) - {info.name for info in after.graph.input}:
        assert name in _unread(before), f"{name} is left and nobody reads it"


def _identity(node: onnx.NodeProto) -> tuple[str, str, str]:
    """Say which node it is: its name, or else what it makes and cannot have been renamed."""
    return (node.domain, node.op_type, node.name or str(list(node.output)))


def _unread(model: onnx.ModelProto) -> set[str]:
    """Return what is made or stored and that nobody reads; names are unique in these tests."""
    nodes = list(all_nodes(model))
    graphs = [model.graph, *(body for node in nodes for body in _bodies([node]))]
    read = {name for node in nodes for name in node.input}
    read |= {info.name for graph in graphs for info in graph.output}
    read |= {name for function in model.functions for name in function.output}
    unread = {out for node in nodes if not read & set(node.output) for out in node.output}
    stored = {item.name for graph in graphs for item in graph.initializer}
    return unread | (stored - read)
