"""Put what a rule describes in the place of one match."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.dpl.draft import DraftConstant, DraftNode, DraftOutput
from dplcli.dpl.drafting import operands_of
from dplcli.ir import Attribute, Value
from dplcli.ir.marks import ORIGIN_KEY, RULE_KEY
from dplcli.ir.traversal import dependents_before, needed_within
from dplcli.ir.value import FIRST_IR_WITH_PLAIN_INITIALIZERS
from dplcli.passes.cleanup import erase_unread
from dplcli.passes.objections import can_be_renamed, object_to_draft
from dplcli.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.draft import Draft, Operand
    from dplcli.dpl.match import Match, Rejection
    from dplcli.ir import Graph, Node
    from dplcli.passes.names import NewNames
    from dplcli.passes.rewriter import RewriteListener

_LONGEST_ORIGIN = 200


class Change(NamedTuple):
    """What became of one match.

    Attributes:
        match: The match, whose nodes are no longer in the graph but for those still read.
        added: The nodes made.
        removed: The nodes taken out: those of the match, and those that only they needed.
    """

    match: Match
    added: tuple[Node, ...]
    removed: tuple[Node, ...]


def replace_match(
    match: Match, draft: Draft, names: NewNames, listener: RewriteListener | None = None
) -> Change | Rejection:
    """Replace *match* by what *draft* describes; outputs keep their names where they are returned.

    Returns:
        What was done; or why it cannot be done here, and then nothing has been changed.
    """
    read = operands_of(draft)
    kept = needed_within(match.nodes, read)
    objection = object_to_draft(match, draft, read, kept) or _object_to_calls(match, draft, names)
    if objection:
        return match.reject(objection)
    return _Replacer(match, draft, kept, names, listener).replace(read)


def _object_to_calls(match: Match, draft: Draft, names: NewNames) -> str:
    """Refuse to let a function call itself."""
    for part in draft.parts:
        function = part.function if isinstance(part, DraftNode) else None
        if function is not None and names.functions.leads_into(function, match.root.graph):
            return f"{function.domain}::{function.name} would call itself"
    return ""


class _Replacer:
    def __init__(
        self,
        match: Match,
        draft: Draft,
        kept: set[Node],
        names: NewNames,
        listener: RewriteListener | None,
    ) -> None:
        self.match = match
        self.draft = draft
        self.names = names
        self.graph: Graph = match.root.graph
        self.rewriter = GraphRewriter(self.graph, listener)
        self.anchor = match.nodes[-1]
        self.kept = kept
        self.made: dict[int, Value | Node] = {}
        self.added: list[Node] = []
        self.origin = self._origin()
        self.gone = {node.name: node.op_type for node in match.nodes if node not in kept}
        self.gone.pop("", None)
        self.source = next(reversed(self.gone), "")

    def replace(self, operands: Sequence[Value]) -> Change:
        outputs = list(zip(self.draft.outputs, self.match.outputs, strict=True))
        if len(outputs) > 1:
            moved = dependents_before(self.anchor, self.match.outputs, self.match.nodes)
            self.rewriter.move_behind(self.anchor, moved)
        self.rewriter.graph.modified = True
        taken_over = self._taken_over(outputs)
        for part in self.draft.parts:
            if isinstance(part, DraftConstant):
                self._make_constant(part, taken_over)
            else:
                self._make_node(part, taken_over)
        for new, old in outputs:
            if new is not old and taken_over.get(_key(new)) is not old:
                self._stand_in(self._value(new), old)
        gone = [node for node in self.match.nodes if node not in self.kept]
        read = [value for node in gone for value in node.inputs if value is not None]
        self.rewriter.erase(gone)
        read += [value for value in operands if value.graph is self.graph]
        dead = erase_unread(read, self.rewriter.listener)
        return Change(self.match, tuple(self.added), (*gone, *dead))

    def _taken_over(self, outputs: Sequence[tuple[Operand, Value]]) -> dict[object, Value]:
        """Say which new values become which values of the match, names and all."""
        taken: dict[object, Value] = {}
        for new, old in outputs:
            if not isinstance(new, Value):
                taken.setdefault(_key(new), old)
        return taken

    def _make_constant(self, part: DraftConstant, taken_over: dict[object, Value]) -> None:
        old = taken_over.get(_key(part))
        if self._keeps_initializers() and (old is None or not old.returned_by):
            if old is None:
                name = self._fresh_name("Constant")
                self.made[id(part)] = self.rewriter.add_initializer(name, part.tensor)
            else:
                self.rewriter.make_initializer(old, part.tensor)
                self.made[id(part)] = old
            return
        value = Attribute("tensor", part.tensor)
        node = self.rewriter.insert(
            self.anchor, "Constant", (), attributes={"value": value}, metadata=self.origin
        )
        self._note(node, "Constant")
        self._give_outputs(node, [old])
        made = node.outputs[0]
        assert made is not None  # noqa: S101  # it was just given
        self.made[id(part)] = made

    def _keeps_initializers(self) -> bool:
        """Tell whether this graph can store data: function bodies cannot.

        Before IR version 4 an initializer had to be a graph input as well.
        """
        graph = self.graph
        while graph.owner is not None:
            graph = graph.owner.graph
        model = graph.model
        return graph is model.graph and model.ir_version >= FIRST_IR_WITH_PLAIN_INITIALIZERS

    def _make_node(self, part: DraftNode, taken_over: dict[object, Value]) -> None:
        op_type = part.op_type
        if part.function is not None:
            op_type = self.names.functions.bring(part.function).name
        if part.domain:
            version = self.graph.model.opset_imports.setdefault(part.domain, part.version)
            self.graph.opset_imports.setdefault(part.domain, version)
        inputs = [None if item is None else self._value(item) for item in part.inputs]
        node = self.rewriter.insert(
            self.anchor,
            op_type,
            inputs,
            domain=part.domain,
            attributes=part.attributes,
            metadata=self.origin,
        )
        self._note(node, op_type)
        count = range(part.output_count)
        self._give_outputs(node, [taken_over.get((id(part), index)) for index in count])
        self.made[id(part)] = node

    def _give_outputs(self, node: Node, taken: Sequence[Value | None]) -> None:
        outputs = [
            self.rewriter.make_value(self._fresh_name(node.op_type), node, index)
            if old is None
            else old
            for index, old in enumerate(taken)
        ]
        self.rewriter.take_over_outputs(node, outputs)

    def _note(self, node: Node, op_type: str) -> None:
        """Name the node after one of the match that it takes the place of."""
        gone = self.gone
        wanted = next((name for name, other in gone.items() if other == op_type), "")
        if wanted:
            node.name = self.names.node(wanted, gone)
            del gone[wanted]
        elif self.source:
            node.name = self.names.node_from(self.source, op_type)
        self.added.append(node)

    def _stand_in(self, value: Value, old: Value) -> None:
        """Let *value* be read wherever *old* was; where *old* is returned, it keeps its name."""
        if not old.returned_by:
            self.rewriter.replace_uses(old, value)
            return
        if can_be_renamed(value, old):
            self.rewriter.rename_source(value, old)
            return
        copy = self.rewriter.insert(self.anchor, "Identity", [value], metadata=self.origin)
        self._note(copy, "Identity")
        self.rewriter.take_over_outputs(copy, [old])

    def _fresh_name(self, op_type: str) -> str:
        base = self.match.outputs[0].name if self.match.outputs else self.anchor.label
        return self.names.value(self.graph, base, op_type)

    def _value(self, operand: Operand) -> Value:
        if isinstance(operand, Value):
            return operand
        made = self.made[id(operand if isinstance(operand, DraftConstant) else operand.node)]
        if isinstance(made, Value):
            return made
        index = operand.index if isinstance(operand, DraftOutput) else 0
        output = made.outputs[index]
        assert output is not None  # noqa: S101  # every output was made
        return output

    def _origin(self) -> dict[str, str]:
        origin = {RULE_KEY: self.match.rule.qualified_name}
        names = ", ".join(node.name for node in self.match.nodes if node.name)
        if names:
            cut = f"{names[: _LONGEST_ORIGIN - 1]}…"
            origin[ORIGIN_KEY] = names if len(names) <= _LONGEST_ORIGIN else cut
        return origin


def _key(operand: Operand) -> object:
    if isinstance(operand, DraftOutput):
        return (id(operand.node), operand.index)
    return id(operand)
