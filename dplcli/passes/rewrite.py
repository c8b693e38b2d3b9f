"""Apply rewrite rules until nothing changes, or do again what a plan lists."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from dplcli.errors import PassError
from dplcli.ir import Attribute, Function, Graph, Node, Tensor, Value
from dplcli.ir.model import (
    FIRST_IR_WITH_PLAIN_INITIALIZERS,
    ORIGIN_KEY,
    RULE_KEY,
    Remarks,
    called_function,
    callees,
    is_in_function,
    scope_of,
)
from dplcli.ir.traversal import (
    captured_values,
    dependents_before,
    enclosing_node,
    is_identity,
    is_made_before,
    needed_within,
    outwards,
)
from dplcli.ir.types import TensorType
from dplcli.keys import keys
from dplcli.language.explain import why_not
from dplcli.language.matcher import Fingerprints, StepBudgetExceededError
from dplcli.language.replacement import (
    Draft,
    DraftConstant,
    DraftNode,
    DraftOutput,
    draft_replacement,
    operands_of,
    whole_node,
)
from dplcli.language.rule import Match, Rejection, by_priority, read_match
from dplcli.passes.foreign import state_calls
from dplcli.passes.inline import BodyCopier, let_run
from dplcli.passes.rewriter import (
    BodyWriter,
    GraphRewriter,
    RewriteListener,
    claim,
    erase_unread,
    inherit_devices,
    raise_ir_version,
    reachable,
)
from dplcli.passes.select import judge, matchable_graphs

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.catalog.plan import PlanEntry
    from dplcli.ir import Model
    from dplcli.language.replacement import Operand, RewriteRule
    from dplcli.language.rule import Rule
    from dplcli.passes.inline import Values

    Form: TypeAlias = tuple[object, ...]

    Pairs = Sequence[tuple[Operand, Value]]

    Outputs: TypeAlias = tuple[Value | None, ...]

    Event: TypeAlias = "Application | Refusal"

    OpKey: TypeAlias = tuple[str, str]

    Seen: TypeAlias = tuple[dict[OpKey, int], ...]


# Functions of other models that a replacement calls. Each is copied into the model once.


IMPORTED_KEY = "dpl.brought"
"""Metadata key of a function that was copied from another model: a digest of the original."""


class ImportedFunctions:
    """The functions that a model got from other models.

    Args:
        model: The model that gets them.
        announce: Is told of the body of each function that is copied.
    """

    def __init__(self, model: Model, announce: Callable[[Graph], None] | None = None) -> None:
        self.model = model
        self.announce = announce
        self._known: dict[Function, Function] = {}

    def local_copy(self, function: Function) -> Function:
        """Return the model's copy of *function*; make one if there is none.

        If another function has the name, the copy's name gets a number behind it. The functions
        that it calls are copied, too.
        """
        own = self._find(function)
        if own is not None:
            return own
        model = self.model
        raise_ir_version(model)
        copies = {callee: self.local_copy(callee) for callee in callees(function)}
        name = claim(function.name, {each.name for each in model.functions.values()})
        model.opset_imports.setdefault(function.domain, 1)
        imports = {
            domain: model.opset_imports.setdefault(domain, version)
            for domain, version in function.body.opset_imports.items()
        }
        source = function.body
        body = BodyWriter(model, source.name, imports)
        values = {value: body.add_input(value.name) for value in source.inputs}
        for node in source:
            callee = called_function(node)
            op_type = node.op_type if callee is None else copies[callee].name
            inputs = [None if value is None else values[value] for value in node.inputs]
            names = ["" if value is None else value.name for value in node.outputs]
            operator = (node.domain, op_type, "")
            new_node = body.add_node(operator, node.name, inputs, node.attributes, names)
            pairs = zip(node.outputs, new_node.outputs, strict=True)
            values |= {old: new for old, new in pairs if old is not None and new is not None}
        for value in source.outputs:
            body.graph.add_output(values[value])
        copy = Function(function.domain, name, body.graph)
        copy.attributes = function.attributes
        copy.metadata = {**function.metadata, IMPORTED_KEY: _digest(function)}
        self._known[function] = model.functions[copy.key] = copy
        if self.announce is not None:
            self.announce(copy.body)
        return copy

    def leads_into(self, function: Function, graph: Graph) -> bool:
        """Tell whether a call of *function* in *graph* would lead back to *graph*."""
        *_, outermost = outwards(graph)
        own = self._find(function)
        run = [] if own is None else reachable([own], callees)
        return any(each.body is outermost for each in run)

    def _find(self, function: Function) -> Function | None:
        """Return the copy, or a function of the model's own that is the same."""
        if function not in self._known:
            wanted = _digest(function)
            for candidate in self.model.functions.values():
                mark = candidate.metadata.get(IMPORTED_KEY) or _digest(candidate)
                if candidate.domain == function.domain and mark == wanted:
                    self._known[function] = candidate
                    break
        return self._known.get(function)


def _digest(function: Function) -> str:
    """Return a hash of all of a function but its name; the functions that it calls count."""
    parts = [repr(function.attributes)]
    pending = [function]
    seen = {function}
    while pending:
        current = pending.pop()
        body, called = current.body, callees(current)
        parts += [_names(body.inputs), _names(body.outputs)]
        for node in body:
            callee = called_function(node)
            op_type = node.op_type if callee is None else f"callee {called.index(callee)}"
            attributes = sorted((key, _describe(item)) for key, item in node.attributes.items())
            what = f"{node.domain} {op_type} {attributes}"
            parts += [what, _names(node.inputs), _names(node.outputs)]
        new = [callee for callee in called if callee not in seen]
        pending += new
        seen.update(new)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _names(values: Iterable[Value | None]) -> str:
    return repr(["" if value is None else value.name for value in values])


def _describe(attribute: Attribute) -> str:
    value = attribute.value
    if isinstance(value, Tensor):
        return f"{value.dtype} {value.shape} {value.numpy().tolist()}"
    return f"{attribute.kind} {attribute.ref} {value!r}"


# Tell rules that go on for ever from rules that take long.


GROWTH, FREE_NODES = 10, 1000
"""A model may grow to ten times its size and 1000 nodes; a rule may be applied as often."""

PATIENCE = 4
"""How often a value may be replaced before its forms are compared."""

_DEPTH = 6
_SMALL = 64


class RewriteLimitError(PassError):
    """Rules would be applied without an end."""


class Birth(NamedTuple):
    """How a node came to be.

    Attributes:
        generation: How many applications led to it, each on the result of the one before.
        rule: The rule that made it.
        parent: The birth of the youngest node that the rule matched; None if no rule made any.
    """

    generation: int
    rule: str
    parent: Birth | None


class LoopDetector:
    """Finds rules that would go on for ever.

    Two rules that undo each other bring a value back to an earlier form. A rule that feeds itself
    makes nodes of more generations than the model has places for.
    """

    def __init__(self, model: Model, most: int | None = None) -> None:
        self.model = model
        self.largest = GROWTH * (model.node_count + FREE_NODES)
        self.most = self.largest if most is None else most
        inputs = sum(len(node.inputs) for graph in model.graphs() for node in graph)
        self.oldest = model.node_count + inputs + FREE_NODES
        self._births: dict[Node, Birth] = {}
        self._replaced: dict[Value, int] = {}
        self._forms: dict[Value, dict[Form, str]] = {}

    def note(self, match: Match, draft: Draft) -> None:
        """Count that *draft* replaces outputs of *match*, and compare the forms of those.

        Raises:
            RewriteLimitError: A value has had its form before; the message names the rules since.
        """
        for value, new in zip(match.outputs, draft.outputs, strict=True):
            if new is value:
                continue
            count = self._replaced[value] = self._replaced.get(value, 0) + 1
            if count <= PATIENCE:
                continue
            form, history = _form(value, _DEPTH), self._forms.setdefault(value, {})
            if form in history:
                names = list(history.values())[list(history).index(form) :]
                told = f"the rules {' -> '.join([*names, names[0]])} undo each other"
                if len(set(names)) == 1:
                    told = f"the rule {names[0]} feeds itself"
                raise RewriteLimitError(f"{told} at {value.name!r}", hint=_HINT)
            history[form] = match.rule.qualified_name

    def note_birth(self, match: Match, nodes: Iterable[Node]) -> None:
        """Remember that *nodes* were made from *match*.

        Raises:
            RewriteLimitError: Too many applications led to them; the message names the rules.
        """
        births = [self._births[node] for node in match.nodes if node in self._births]
        parent = max(births, key=attrgetter("generation"), default=None)
        generation = 1 if parent is None else parent.generation + 1
        birth = Birth(generation, match.rule.qualified_name, parent)
        self._births.update(dict.fromkeys(nodes, birth))
        if generation <= self.oldest:
            return
        names = {birth.rule: None}
        while parent is not None:
            names[parent.rule] = None
            parent = parent.parent
        rules = (
            f"the rules {', '.join(names)} were" if len(names) > 1 else f"the rule {min(names)} was"
        )
        raise RewriteLimitError(
            f"{rules} applied {self.oldest:,} times in a row to what came of it, "
            f"last at {match.root.label!r}",
            hint=_HINT,
        )

    def check(self, rule: str, count: int) -> None:
        """Refuse to apply a rule more often than a model of this size has places for it.

        Raises:
            RewriteLimitError: It was applied more often; the message names the rule.
        """
        if count > self.most:
            raise RewriteLimitError(
                f"the rule {rule} was applied {count:,} times and still matches", hint=_HINT
            )

    def check_size(self, rules: Iterable[str]) -> None:
        """Refuse to let *rules* make the model grow without an end.

        Raises:
            RewriteLimitError: It has become more than ten times as large.
        """
        size = self.model.node_count
        if size > self.largest:
            names = ", ".join(rules)
            raise RewriteLimitError(
                f"the rules {names} made the model grow to {size:,} nodes", hint=_HINT
            )


_HINT = "a rule matches what it or another rule makes; narrow its pattern, or say once: true"


def _form(value: Value, depth: int) -> Form:
    """Describe how *value* is made; what comes from the file stands for itself."""
    node = value.producer
    if node is None:
        tensor = value.constant
        if tensor is None or tensor.size > _SMALL or tensor.is_external:
            return ("value", value)
        return ("constant", *tensor.content)
    if depth == 0 or (node.source is not None and not node.rewired and depth < _DEPTH):
        return ("value", value)
    attributes = tuple((name, repr(item)) for name, item in sorted(node.attributes.items()))
    inputs = tuple(None if item is None else _form(item, depth - 1) for item in node.inputs)
    return (node.qualified_op, value.index, attributes, inputs)


# New names. Each is used once, and tells what it was made from.


class NewNames:
    """Names for the nodes and values that passes make in one model.

    Attributes:
        shared: The constants that several places may read, by what they hold.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.shared: dict[object, Value] = {}
        self._numbers: dict[str, int] = {}
        self._origins: dict[str, str] = {}

    def node(self, wanted: str, free: Container[str] = ()) -> str:
        """Return *wanted*, or with a number behind it if a node that stays has that name.

        Args:
            wanted: The name that the node should have.
            free: Names of nodes that are about to go.
        """
        used = self._nodes
        name = wanted if wanted in free else self._numbered(wanted, used.__contains__)
        used.add(name)
        return name

    def node_from(self, source: str, op_type: str) -> str:
        """Return a name for a node of *op_type* that is made from the one called *source*.

        If *source* was made here, too, the name begins with the original one.
        """
        origin = self._origins.get(f"node {source}", source)
        name = self.node(f"{origin}/{op_type}")
        self._origins[f"node {name}"] = origin
        return name

    def copied(self, graph: Graph, wanted: str, without: Container[Graph]) -> str:
        """Return *wanted* as the name of a value of *graph*, with a number behind it if need be.

        Args:
            graph: Where the value is.
            wanted: The name that it should have.
            without: The bodies that go, names and all.
        """
        return self._numbered(wanted, self._clashes_in(graph, without))

    def value(self, graph: Graph, source: str, what: str) -> str:
        """Return a name for a value of *graph*: that of *source*, and *what* it is.

        If *source* was made here, too, the name begins with the original one.
        """
        origin = self._origins.get(source, source)
        name = self._numbered(f"{origin}_{what}", self._clashes_in(graph))
        self._origins[name] = origin
        return name

    @cached_property
    def _nodes(self) -> set[str]:
        """The names of nodes."""
        return {node.name for graph in self.model.graphs() for node in graph}

    def _clashes_in(self, graph: Graph, without: Container[Graph] = ()) -> Callable[[str], bool]:
        """Return what tells whether a name of a value means something in *graph*."""
        # List the graphs in which names may clash with those of *graph*: inside it and outside.
        scopes = [
            scope
            for scope in [*graph.and_inner(), *islice(outwards(graph), 1, None)]
            if scope not in without
        ]
        taken = self.model.taken
        return lambda name: (
            name in taken or any(name in each.values or name in each.erased for each in scopes)
        )

    def _numbered(self, wanted: str, is_used: Callable[[str], bool]) -> str:
        name = wanted
        number = self._numbers.get(wanted, 0)
        while number or is_used(name):
            number += 1
            name = f"{wanted}_{number}"
            if not is_used(name):
                break
        if number:
            self._numbers[wanted] = number
        return name


class NewNodeNames:
    """Names for the nodes that take the place of one match.

    Args:
        names: Where they come from.
        gone: The names of nodes that leave the graph, and their operators, producers first.
    """

    def __init__(self, names: NewNames, gone: Mapping[str, str]) -> None:
        self.names = names
        self.gone = {name: op_type for name, op_type in gone.items() if name}
        self.last = next(reversed(self.gone), "")

    def node(self, op_type: str) -> str:
        """Name a new node after one that it takes the place of, or the last one; "" without."""
        gone = self.gone
        wanted = next((name for name, other in gone.items() if other == op_type), "")
        if wanted:
            name = self.names.node(wanted, gone)
            del gone[wanted]
            return name
        return self.names.node_from(self.last, op_type) if self.last else ""

    def origin(self, rule: Rule, draft: Draft, makers: Container[str]) -> dict[str, str]:
        """Return what new nodes say of themselves: the rule, and whose results they make.

        Every name takes room in the file, so those that new nodes have are left out, and those of
        *makers* alone are in.
        """
        gone = dict(self.gone)
        for part in draft.parts:
            op_type = part.op_type if isinstance(part, DraftNode) else "Constant"
            gone.pop(next((name for name, other in gone.items() if other == op_type), ""), None)
        origin = {RULE_KEY: rule.qualified_name}
        joined = ", ".join(name for name in gone if name in makers)
        if joined:
            cut = f"{joined[: _LONGEST_ORIGIN - 1]}…"
            origin[ORIGIN_KEY] = joined if len(joined) <= _LONGEST_ORIGIN else cut
        return origin


_LONGEST_ORIGIN = 200


class _NamesOfCopies:
    """Names for what is copied out of bodies that go: those that it had in them, if possible."""

    def __init__(self, names: NewNames, gone: Iterable[Node]) -> None:
        self._names = names
        self._bodies = {
            graph for node in gone for body in node.subgraphs.values() for graph in body.and_inner()
        }
        self._free = {node.name for body in self._bodies for node in body}

    def node(self, wanted: str) -> str:
        return self._names.node(wanted, self._free) if wanted else ""

    def value(self, graph: Graph, wanted: str) -> str:
        return self._names.copied(graph, wanted, self._bodies)


# Reasons why a replacement cannot take the place of a match.


def object_to_draft(
    match: Match, draft: Draft, read: Sequence[Value], kept: AbstractSet[Node]
) -> str:
    """Say why *draft* cannot take the place of *match*, or "".

    Args:
        match: The match.
        draft: What is to take its place.
        read: The existing values that *draft* reads or returns.
        kept: The nodes of the match that *read* depends on.
    """
    every = zip(draft.outputs, match.outputs, strict=True)
    pairs = [(new, old) for new, old in every if new is not old]
    return (
        _object_to_operands(match, pairs, read)
        or _object_to_kept_nodes(match, draft, pairs, kept)
        or next(
            (
                f"{old.name!r} is an output, so a copy of {new.name!r} has to make it"
                for new, old in pairs
                if match.nodes == (old.producer,) and isinstance(new, Value) and _is_copy(new, old)
            ),
            "",
        )
    )


def _object_to_operands(match: Match, pairs: Pairs, read: Sequence[Value]) -> str:
    """Refuse to read what is replaced, and what is made later."""
    replaced = {old for _, old in pairs}
    anchor = match.nodes[-1]
    for value in read:
        if value in replaced:
            return f"the replacement reads {value.name!r}, which it replaces"
        if value.producer is not anchor and not is_made_before(value, anchor):
            return f"the replacement reads {value.name!r}, which is not made before it"
    if len(match.outputs) > 1:
        moved = dependents_before(anchor, match.outputs, match.nodes)
        late = {output for node in moved for output in node.outputs}
        for value in read:
            if value in late:
                return f"the replacement reads {value.name!r}, which needs what it replaces"
    return ""


def _object_to_kept_nodes(match: Match, draft: Draft, pairs: Pairs, kept: AbstractSet[Node]) -> str:
    """Refuse to keep a node whose output is replaced, and to read the last node of the match."""
    for _, old in pairs:
        maker = old.producer
        if maker is not None and maker in kept:
            return f"the replacement needs {maker.op_type} {maker.label!r}, which it replaces"
    anchor = match.nodes[-1]
    if anchor not in kept:
        return ""
    copies = any(isinstance(new, Value) and old.returned_by for new, old in pairs)
    if copies or any(isinstance(part, DraftNode) for part in draft.parts):
        return f"the replacement reads {anchor.label!r}, the last node of the match"
    return ""


def _is_copy(new: Value, old: Value) -> bool:
    """Tell whether *old* is an Identity of *new*, and would have to be one again."""
    node = old.producer
    return (
        node is not None
        and is_identity(node)
        and node.inputs == (new,)
        and bool(old.returned_by)
        and not can_be_renamed(new, old)
    )


def can_be_renamed(value: Value, old: Value) -> bool:
    """Tell whether *value* can take the name of *old*."""
    maker = value.producer
    return (
        maker is not None
        and value.graph is old.graph
        and not value.returned_by
        and not value.is_graph_input
    )


# Put a replacement in the place of one match.


class Change(NamedTuple):
    """What became of one match.

    Attributes:
        match: The match; its nodes have left the graph, but for those that others read.
        added: The nodes made.
        removed: The nodes taken out: those of the match, and those that only they needed.
    """

    match: Match
    added: tuple[Node, ...]
    removed: tuple[Node, ...]


_FIRST_OPSET_WITH_ANY_CONSTANT = 9
_FIRST_CONSTANTS = frozenset({"float16", "float32", "float64"})


@dataclass
class Replacer:
    """Replaces one match by what a draft describes; outputs that are returned keep their names.

    Attributes:
        match: The match.
        draft: What takes its place.
        names: Where new nodes and values get their names.
        functions: The functions of other models that this one has.
        listener: Told of every edit.
    """

    match: Match
    draft: Draft
    names: NewNames
    functions: ImportedFunctions
    listener: RewriteListener

    def __post_init__(self) -> None:
        match = self.match
        self.graph: Graph = match.root.graph
        self.rewriter = GraphRewriter(self.graph, self.listener)
        self.anchor = match.nodes[-1]
        self.operands = operands_of(self.draft)
        self.kept = needed_within(match.nodes, [*self.operands, *match.escaping])
        self.made: dict[int, Value | Node] = {}
        self.added: list[Node] = []
        self.copies: set[Node] = set()
        gone = {node.name: node.op_type for node in match.nodes if node not in self.kept}
        self.node_names = NewNodeNames(self.names, gone)
        self.copied_names = _NamesOfCopies(self.names, match.nodes)
        makers = [value.producer for value in match.outputs]
        names_of_makers = {node.name for node in makers if node is not None}
        origin = self.node_names.origin(match.rule, self.draft, names_of_makers)
        self.origin = Remarks(metadata=origin)

    def replace(self) -> Change | Rejection:
        """Put the replacement in.

        Returns:
            What was done; or why it cannot be done here, and then nothing has been changed.
        """
        objection = object_to_draft(self.match, self.draft, self.operands, self.kept)
        outputs = list(zip(self.draft.outputs, self.match.outputs, strict=True))
        # The output of the match whose place, and name, each new value takes.
        new_first = [(new, old) for new, old in outputs if not isinstance(new, Value)]
        inherited = {_key(new): old for new, old in reversed(new_first)}
        objection = objection or self._object_to_parts(inherited)
        if objection:
            return self.match.reject(objection)
        if len(outputs) > 1:
            moved = dependents_before(self.anchor, self.match.outputs, self.match.nodes)
            self.rewriter.move_behind(self.anchor, moved)
        raise_ir_version(self.graph.model, FIRST_IR_WITH_PLAIN_INITIALIZERS)
        self.rewriter.graph.modified = True
        for part in self.draft.parts:
            if isinstance(part, DraftConstant):
                self._make_constant(part, inherited)
            else:
                self._make_node(part, inherited)
        for new, old in outputs:
            if new is not old and inherited.get(_key(new)) is not old:
                self._stand_in(self._value(new), old)
        for node in self.added:
            if node not in self.copies:
                inherit_devices(node, self.match.nodes)
        gone = [node for node in self.match.nodes if node not in self.kept]
        read = [value for node in gone for value in node.read]
        read += [value for node in gone for value in captured_values(node)]
        self.rewriter.erase(gone)
        read += [value for value in self.operands if value.graph is self.graph]
        dead = erase_unread(read, self.rewriter.listener)
        return Change(self.match, tuple(self.added), (*gone, *dead))

    def _object_to_parts(self, inherited: Mapping[object, Value]) -> str:
        """Refuse a function that calls itself, and what no Constant node holds before opset 9."""
        has_all = self.graph.opset_imports.get("", 0) >= _FIRST_OPSET_WITH_ANY_CONSTANT
        for part in self.draft.parts:
            if isinstance(part, DraftNode):
                function = part.function
                if function is not None and self.functions.leads_into(function, self.graph):
                    return f"{function.domain}::{function.name} would call itself"
            elif not has_all and part.tensor.dtype not in _FIRST_CONSTANTS:
                old = inherited.get(_key(part))
                if is_in_function(self.graph) or (old is not None and old.returned_by):
                    return f"no Constant node holds {part.tensor.dtype} before opset 9"
        return ""

    def _make_constant(self, part: DraftConstant, inherited: dict[object, Value]) -> None:
        old = inherited.get(_key(part))
        if not is_in_function(self.graph) and (old is None or not old.returned_by):
            if old is None:
                self.made[id(part)] = self._initializer(part)
            else:
                self.rewriter.make_initializer(old, part.tensor)
                self.made[id(part)] = old
            return
        value = Attribute("tensor", part.tensor)
        node = self.rewriter.insert(
            self.anchor, "Constant", (), attributes={"value": value}, remarks=self.origin
        )
        self._note(node, "Constant")
        output = old or self.rewriter.make_value(self._name_of_constant(part), node)
        self.rewriter.take_over_outputs(node, [output])
        self.made[id(part)] = output

    def _initializer(self, part: DraftConstant) -> Value:
        if not part.is_shared:
            return self.rewriter.add_initializer(self._name_of_constant(part), part.tensor)
        key = (self.graph, *part.tensor.content)
        value = self.names.shared.get(key)
        if value is None or self.graph.values.get(value.name) is not value:
            name = self._fresh_name("Constant")
            value = self.names.shared[key] = self.rewriter.add_initializer(name, part.tensor)
        return value

    def _name_of_constant(self, part: DraftConstant) -> str:
        if part.name:
            return self.copied_names.value(self.graph, part.name)
        wanted = TensorType(part.tensor.dtype, part.tensor.shape)
        gone = [node for node in self.match.nodes if node not in self.kept]
        stored = {value for node in gone for value in node.read if value.is_constant}
        left = stored.difference(self.operands)
        sources = [value.name for value in left if value.declared_type == wanted]
        if len(sources) == 1 and wanted.shape:  # what a weight becomes is called after it
            return self.names.value(self.graph, sources[0], "folded")
        return self._fresh_name("Constant")

    def _copy_node(self, part: DraftNode, source: Node, inherited: dict[object, Value]) -> None:
        """Make a copy of a node of a body that goes."""
        node = self.rewriter.insert(
            self.anchor,
            source.op_type,
            [None if item is None else self._value(item) for item in part.inputs],
            domain=source.domain,
            name=self.copied_names.node(source.name),
            attributes=source.attributes,
            remarks=source.remarks,
        )
        node.overload = source.overload
        if source.subgraphs:
            values: Values = {old: self._value(new) for old, new in part.captured}
            BodyCopier(values, attrgetter("attributes"), self.copied_names).copy_bodies(
                source, node
            )
            self.rewriter.listener.bodies_made(node)
        outputs: list[Value | None] = []
        for index, old in enumerate(source.outputs):
            new = None if old is None else inherited.get((id(part), index))
            if new is None and old is not None:
                # Make a value that is a copy of one of a body, with the type that is stated of
                # it.
                name = self.copied_names.value(self.graph, old.name)
                new = self.rewriter.make_value(name, node, old.index)
                new.type_source, stated = old.type_source, old.stated_type
                if stated is not None:
                    self.graph.stated_types[name] = stated
            outputs.append(new)
        self.rewriter.take_over_outputs(node, outputs)
        if self.graph.model.is_spread and source.graph.owner is not None:
            let_run(node, source, source.graph.owner.remarks.rest)
        self.copies.add(node)
        self.added.append(node)
        self.made[id(part)] = node

    def _make_node(self, part: DraftNode, inherited: dict[object, Value]) -> None:
        if part.copied is not None:
            self._copy_node(part, part.copied, inherited)
            return
        op_type = part.op_type
        if part.function is not None:
            op_type = self.functions.local_copy(part.function).name
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
            remarks=self.origin,
        )
        self._note(node, op_type)
        outputs = [
            inherited.get((id(part), index))
            or self.rewriter.make_value(self._fresh_name(op_type), node, index)
            for index in range(part.output_count)
        ]
        self.rewriter.take_over_outputs(node, outputs)
        self.made[id(part)] = node

    def _note(self, node: Node, op_type: str) -> None:
        node.name = self.node_names.node(op_type)
        self.added.append(node)

    def _stand_in(self, value: Value, old: Value) -> None:
        """Let all readers of *old* read *value*; if *old* is returned, its name stays."""
        if not old.returned_by:
            self.rewriter.replace_uses(old, value)
            return
        if can_be_renamed(value, old):
            self.rewriter.rename_source(value, old)
            return
        copy = self.rewriter.insert(self.anchor, "Identity", [value], remarks=self.origin)
        self._note(copy, "Identity")
        self.rewriter.take_over_outputs(copy, [old])

    def _fresh_name(self, op_type: str) -> str:
        base = self.match.outputs[0].name if self.match.outputs else self.anchor.label
        return self.names.value(self.graph, base, op_type)

    def _value(self, operand: Operand) -> Value:
        if isinstance(operand, Value):
            return operand
        outputs = self.made[id(operand if isinstance(operand, DraftConstant) else operand.node)]
        if isinstance(outputs, Value):
            return outputs
        index = operand.index if isinstance(operand, DraftOutput) else 0
        output = outputs.outputs[index]
        assert output is not None  # noqa: S101  # every output was made
        return output


def _key(operand: Operand) -> object:
    if isinstance(operand, DraftOutput):
        return (id(operand.node), operand.index)
    return id(operand)


# Records of what was rewritten, in words: they stay true when the model is edited further.


class NodeIdentity(NamedTuple):
    """What identifies a node to a reader; its output has a name even if the node has none."""

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


@keys(
    "id=number rule scope root removed added",
    columns="=number:number rule scope removed=taken:prose added=put:prose",
)
class Application(NamedTuple):
    """One application of a rule.

    Attributes:
        number: Counts from 1.
        round: The round it was made in.
        rule: The rule's name.
        scope: The graph, as :func:`dplcli.ir.model.scope_of` names it.
        root: The node that made the first output.
        removed: The nodes taken out.
        added: The nodes put in.
        values: The names of all values that these nodes had.
    """

    number: int
    round: int
    rule: str
    scope: str
    root: NodeIdentity
    removed: tuple[NodeIdentity, ...]
    added: tuple[NodeIdentity, ...]
    values: frozenset[str]

    @property
    def text(self) -> str:
        """What it did: ``replaced Conv 'c', Relu 'r' by FusedConv 'c'``."""
        where = "" if self.scope == "main" else f" in {self.scope}"
        if self.removed:
            return (
                f"replaced {self.taken} by {self.put}{where}"
                if self.added
                else f"removed {self.taken}{where}"
            )
        return (
            f"added {self.put}{where}"
            if self.added
            else f"changed {list_nodes([self.root])}{where}"
        )

    @property
    def taken(self) -> str:
        """The nodes taken out, in words."""
        return list_nodes(self.removed)

    @property
    def put(self) -> str:
        """The nodes put in, in words."""
        return list_nodes(self.added)


def identify(node: Node, outputs: Outputs) -> NodeIdentity:
    """Return the identity that *node* had with these *outputs*."""
    output = next((output.name for output in outputs if output is not None), "")
    return NodeIdentity(node.op_type, node.domain, node.name, output)


def list_nodes(nodes: Sequence[NodeIdentity], most: int = 8) -> str:
    """Name nodes for a reader: ``Conv 'c', Relu 'r' and 3 more``."""
    shown = ", ".join(f"{node.qualified_op} {node.label!r}" for node in nodes[:most])
    return f"{shown} and {len(nodes) - most} more" if len(nodes) > most else shown


# Observers of a rewrite. They may also restrict it.


class RewriteObserver:
    """Is told of every turn, application and refusal; this base class admits everything."""

    @property
    def is_over(self) -> bool:
        """Whether no more should be done."""
        return False

    @property
    def may_refuse(self) -> bool:
        """Whether :meth:`admits` may say no; if it is overridden, it may."""
        return type(self).admits is not RewriteObserver.admits

    def admits(self, rule: RewriteRule, root: Node) -> bool:  # noqa: ARG002  # for overriding
        """Tell whether *rule* may be tried at *root*; asked only if it may say no."""
        return True

    def wants(self, match: Match) -> bool:  # noqa: ARG002  # for overriding
        """Tell whether *match*, which could be replaced, is to be."""
        return True

    def objection(self, match: Match, draft: Draft) -> str:  # noqa: ARG002  # for overriding
        """Say why *draft* is not to replace *match*; "" if it may."""
        return ""

    def turn_started(self, number: int, rule: RewriteRule, candidates: int) -> None:
        """The turn of *rule* in round *number* begins; it has so many *candidates*."""

    def applied(self, application: Application) -> None:
        """A rule was applied."""

    def refused(self, rejection: Rejection) -> None:
        """A pattern fits, but is refused."""

    def turn_ended(self, rule: RewriteRule, count: int) -> None:
        """The turn of *rule* has ended; the rule was applied *count* times."""


# A record of a rewrite: every turn, what was done in it, and what was refused.


class Refusal(NamedTuple):
    """A match that was not replaced, and why.

    Attributes:
        scope: The graph, as :func:`dplcli.ir.model.scope_of` names it.
        root: The node that the pattern fits at.
        stage: Which test it failed.
        reason: What the test found.
    """

    scope: str
    root: NodeIdentity
    stage: str
    reason: str


@keys("event *=application")
class AppliedEvent(NamedTuple):
    """A rule was applied."""

    event: Literal["applied"]
    application: Application


@keys("event *=refusal")
class RefusedEvent(NamedTuple):
    """A rule was refused."""

    event: Literal["refused"]
    refusal: Refusal


@keys("round rule candidates applied events=told")
@dataclass
class TracedTurn:
    """What one rule did in one round.

    Attributes:
        round: The round.
        rule: The rule's name.
        candidates: How many nodes it had to look at.
        events: Its applications and refusals, in order.
    """

    round: int
    rule: str
    candidates: int
    events: list[Event] = field(default_factory=list)

    @property
    def told(self) -> list[AppliedEvent | RefusedEvent]:
        """The events, each with what it is."""
        return [
            AppliedEvent("applied", event)
            if isinstance(event, Application)
            else RefusedEvent("refused", event)
            for event in self.events
        ]

    @property
    def applied(self) -> int:
        """How often the rule was applied."""
        return sum(isinstance(event, Application) for event in self.events)


class Trace(RewriteObserver):
    """Records all that happens, also when the rewrite ends with an error."""

    turns: list[TracedTurn]

    def __init__(self) -> None:
        self.turns = []

    def turn_started(self, number: int, rule: RewriteRule, candidates: int) -> None:
        """Begin a turn."""
        self.turns.append(TracedTurn(number, rule.qualified_name, candidates))

    def applied(self, application: Application) -> None:
        """Note an application."""
        self.turns[-1].events.append(application)

    def refused(self, rejection: Rejection) -> None:
        """Note a refusal."""
        root = rejection.root
        self.turns[-1].events.append(
            Refusal(
                scope_of(root.graph),
                identify(root, root.outputs),
                rejection.stage,
                rejection.reason,
            )
        )


# Which nodes each rule still has to look at. The cost of a round depends on what has changed.
#
# The work-list has all nodes by operator, and a journal of the nodes at which a rule may match that
# did not match before. MLIR's greedy driver has one work-list for all patterns
# (``mlir/lib/Transforms/Utils/GreedyPatternRewriteDriver.cpp``). Here each rule has its own place
# in the journal, since rules take turns in listed order.


_POSITION = attrgetter("position")


_MOST_SIZES = 64


class Concern(NamedTuple):
    """How far a list of rules looks from the root of a match.

    Attributes:
        heads: The operators of roots; None for all.
        inner: The operators of the nodes above a root in a match; None for all.
        reach: The greatest depth of a match, in nodes.
        largest: The greatest number of nodes in a match.
        counts_uses: Whether some rule depends on how often its leaves are read.
    """

    heads: frozenset[OpKey] | None
    inner: frozenset[OpKey] | None
    reach: int
    largest: int
    counts_uses: bool

    @classmethod
    def of(cls, rules: Sequence[RewriteRule]) -> Concern:
        """Sum up *rules*; those of unknown reach count neither for *inner* nor for *reach*."""
        local = [rule for rule in rules if rule.reach is not None]
        return cls(
            _union([rule.heads for rule in rules]),
            _union([rule.inner_operators for rule in local]),
            max((rule.reach or 0 for rule in local), default=0),
            max((rule.largest_match for rule in rules), default=0),
            any(rule.counts_uses for rule in rules),
        )


def _union(sets: Sequence[frozenset[OpKey] | None]) -> frozenset[OpKey] | None:
    operators = [ops for ops in sets if ops is not None]
    return frozenset().union(*operators) if len(operators) == len(sets) else None


class Journal:
    """Nodes to look at again, by operator, in the order in which they were noted."""

    def __init__(self) -> None:
        self._entries: dict[OpKey, list[Node]] = {}

    def add(self, node: Node) -> None:
        """Note *node*."""
        self._entries.setdefault((node.domain, node.op_type), []).append(node)

    def end(self) -> dict[OpKey, int]:
        """Return where the journal ends now."""
        return {key: len(entries) for key, entries in self._entries.items()}

    def since(self, seen: dict[OpKey, int], heads: AbstractSet[OpKey] | None) -> Iterator[Node]:
        """Yield what was noted since *seen*, and bring *seen* up to date."""
        keys = list(self._entries) if heads is None else self._entries.keys() & heads
        for key in keys:
            entries = self._entries[key]
            yield from entries[seen.get(key, 0) :]
            seen[key] = len(entries)


class Worklist(RewriteListener):
    """Follows all edits, and knows for each rule which nodes it has to look at again.

    Some nodes matter only because a value has other readers than before. They have a journal of
    their own: most rules do not depend on that, and a weight may have very many readers.

    Args:
        model: The model that is being edited.
        concern: What the rules can see.
    """

    def __init__(self, model: Model, concern: Concern) -> None:
        self.concern = concern
        self.graphs: dict[Graph, int] = {}
        self._ranks = count()
        self._nodes: dict[OpKey, dict[Graph, dict[Node, None]]] = {}
        self._gone: set[Node] = set()
        self._journals = (Journal(), Journal())
        self._changed: dict[Value, None] = {}
        self._rewired: dict[Node, None] = {}
        self._recounted: dict[Value, None] = {}
        self.has_new_sizes = False
        self.edits = 0
        self.fingerprints = Fingerprints()
        for graph in matchable_graphs(model):
            self._list(graph)

    def _list(self, graph: Graph) -> None:
        self.graphs[graph] = next(self._ranks)
        for node in graph:
            self._list_node(node)

    def _list_node(self, node: Node) -> None:
        by_graph = self._nodes.setdefault((node.domain, node.op_type), {})
        by_graph.setdefault(node.graph, {})[node] = None

    def _unlist_node(self, node: Node) -> None:
        by_graph = self._nodes[node.domain, node.op_type]
        nodes = by_graph.get(node.graph, {})
        nodes.pop(node, None)
        if not nodes:
            by_graph.pop(node.graph, None)
        self._gone.add(node)

    # -- listening -----------------------------------------------------------------------------

    def node_inserted(self, node: Node) -> None:
        """List a new node, and let every rule look at it."""
        self._list_node(node)
        self._journals[0].add(node)
        self._recount(node)
        self.edits += 1

    def node_erased(self, node: Node) -> None:
        """Take a node off the list."""
        self._unlist_node(node)
        for body in node.subgraphs.values():
            for graph in body.and_inner():
                self.graphs.pop(graph, None)
                for inner in graph:
                    self._unlist_node(inner)
        self._recount(node)
        self.edits += 1
        self.fingerprints.forget(node)

    def bodies_made(self, node: Node) -> None:
        """List the nodes of the bodies of a new node, and let every rule look at them."""
        for body in node.subgraphs.values():
            for graph in body.and_inner():
                self.graph_added(graph)
        self._recount(node)

    def _recount(self, node: Node) -> None:
        """Remember that the values that *node* reads have other readers than before."""
        recounted = self._recounted
        for value in node.inputs:
            if value is not None:
                recounted[value] = None
        if node.subgraphs:
            recounted.update(dict.fromkeys(captured_values(node)))

    def graph_added(self, graph: Graph) -> None:
        """List a new function's body, and let every rule look at it."""
        self._list(graph)
        for node in graph:
            self._journals[0].add(node)
        self.edits += 1

    def value_changed(self, value: Value) -> None:
        """Remember that what lies below *value* must be looked at again."""
        self._changed[value] = None
        self.fingerprints.forget_readers(value)

    def inputs_changed(self, node: Node) -> None:
        """Remember that *node* must be looked at again, and what lies below it."""
        self._rewired[node] = None
        self.fingerprints.forget(node)

    def readers_changed(self, value: Value) -> None:
        """Remember that what depends on how often *value* is read must be looked at again."""
        self._recounted[value] = None

    def constant_made(self, value: Value) -> None:
        """Remember that more shapes may be known, if *value* can be a size."""
        self.fingerprints.forget_readers(value)
        tensor = value.initializer_source
        if isinstance(tensor, Tensor) and tensor.dtype.startswith("int"):
            self.has_new_sizes |= tensor.size <= _MOST_SIZES

    def takes_new_sizes(self) -> bool:
        """Tell whether constants that may be sizes were made since this was asked last."""
        answer, self.has_new_sizes = self.has_new_sizes, False
        return answer

    # -- asking --------------------------------------------------------------------------------

    def is_listed(self, node: Node) -> bool:
        """Tell whether *node* is still in its graph."""
        return node not in self._gone

    def graphs_with(self, needed: Iterable[Iterable[OpKey]]) -> list[Graph]:
        """Return the graphs that have, of each of the sets *needed*, an operator.

        A model may have a million bodies, so only those are looked at that have what is rarest.
        """
        choices = [[self._nodes.get(op, {}).keys() for op in ops] for ops in needed]
        rarest = min(
            choices, key=lambda having: sum(map(len, having)), default=[self.graphs.keys()]
        )
        return self._in_order(
            graph
            for graph in set(chain.from_iterable(rarest))
            if all(any(graph in having for having in choice) for choice in choices)
        )

    def _in_order(self, graphs: Iterable[Graph]) -> list[Graph]:
        return sorted(graphs, key=self.graphs.__getitem__)

    def all_of(self, graph: Graph, heads: Iterable[OpKey] | None) -> list[Node]:
        """Return the nodes of *graph* of the operators *heads*, in topological order."""
        if heads is None:
            return list(graph)
        nodes = [node for key in heads for node in self._nodes.get(key, {}).get(graph, ())]
        nodes.sort(key=_POSITION)
        return nodes

    def new_since(
        self, seen: Seen, heads: AbstractSet[OpKey] | None, *, counts_uses: bool = True
    ) -> dict[Graph, list[Node]]:
        """Return the nodes to look at again, by graph, in topological order.

        Args:
            seen: How much of the journals was read before; it is brought up to date.
            heads: The operators of interest; None for all.
            counts_uses: Whether it matters how often leaves are read.
        """
        self._note_what_lies_below()
        candidates: dict[Graph, dict[Node, None]] = {}
        journals = self._journals if counts_uses else self._journals[:1]
        for journal, place in zip(journals, seen, strict=False):
            for node in journal.since(place, heads):
                if self.is_listed(node):
                    candidates.setdefault(node.graph, {})[node] = None
        return {
            graph: sorted(candidates[graph], key=_POSITION) for graph in self._in_order(candidates)
        }

    def forget_before(self) -> Seen:
        """Return where the journals end now."""
        self._note_what_lies_below()
        return tuple(journal.end() for journal in self._journals)

    def _note_what_lies_below(self) -> None:
        """Note the nodes that edits may concern."""
        changed, self._changed = self._changed, {}
        rewired, self._rewired = self._rewired, {}
        recounted, self._recounted = self._recounted, {}
        inner = [value for value in recounted if self._may_be_inner(value)]
        self._note_below([*changed, *inner], rewired, self._journals[0])
        if self.concern.counts_uses:
            self._note_below([*recounted], (), self._journals[1])

    def _may_be_inner(self, value: Value) -> bool:
        """Tell whether *value* has so few readers that one match may hold them all."""
        if value.producer is None or value.returned_by:
            return False
        if value.use_count <= self.concern.largest:
            return True
        readers: set[Node | None] = set()
        for node, _slot in value.iter_uses():
            if not is_identity(node):
                readers.add(enclosing_node(node, value.graph))
                if len(readers) > self.concern.largest:
                    return False
        return True

    def _note_below(
        self, values: Sequence[Value], readers: Iterable[Node], journal: Journal
    ) -> None:
        """Note the makers of *values*, the *readers*, and all nodes within reach below them."""
        seen = dict.fromkeys(values)
        noted: set[Node] = set()
        for value in values:
            if value.producer is not None:
                self._note(value.producer, noted, journal)
                seen.update((out, None) for out in value.producer.outputs if out is not None)
        level: list[Value] = list(seen)
        below: list[Value] = []
        for node in readers:
            self._note(node, noted, journal)
            self._pass(node, seen, level, below)
        for _ in range(self.concern.reach):
            while level:
                for node, _slot in level.pop().iter_uses():
                    if node not in noted:
                        self._note(node, noted, journal)
                        self._pass(node, seen, level, below)
            level, below = below, []

    def _note(self, node: Node, noted: set[Node], journal: Journal) -> None:
        noted.add(node)
        heads = self.concern.heads
        if (heads is None or (node.domain, node.op_type) in heads) and node.graph in self.graphs:
            journal.add(node)

    def _pass(
        self, node: Node, seen: dict[Value, None], level: list[Value], below: list[Value]
    ) -> None:
        """Look below *node*, too, if a match can hold it together with what reads it."""
        inner = self.concern.inner
        if is_identity(node):
            level += _new_outputs(node, seen)
        elif inner is None or (node.domain, node.op_type) in inner:
            below += _new_outputs(node, seen)


def _new_outputs(node: Node, seen: dict[Value, None]) -> list[Value]:
    """Return the outputs of *node* that are not in *seen* yet, and add them."""
    outputs = [output for output in node.outputs if output is not None and output not in seen]
    seen.update(dict.fromkeys(outputs))
    return outputs


# Apply rewrite rules, in turns, until nothing changes.
#
# In each round every rule has one turn, in listed order. In its first turn a rule looks at all
# nodes, later at those that edits may concern (Worklist).


_INFERENCES = 4
"""How often types are inferred again after the rules have settled."""


class RuleProgress:
    """One rule, and how far it has read the journal.

    Attributes:
        rule: The rule.
        heads: The operators its matches may be rooted in; None for all.
        follows_shapes: Whether it depends on what is known of shapes.
        is_local: Whether it depends on nothing but what lies within reach of its root.
        looks_afar: Whether it asks a function that may depend on more than the pattern's reach.
        seen: How far it has read the journals.
        has_begun: Whether it has looked at all nodes.
        edits: How many edits there had been when it last did so.
        function: What it asks, with a memory of its own for this run.
        concerns: Of a function without a pattern, what tells cheaply where it may do something.
        hopes: By number of a fingerprint, whether it may match there.
    """

    def __init__(self, rule: RewriteRule) -> None:
        self.rule = rule
        self.heads = rule.heads
        self.is_local = rule.reach is not None
        self.seen: Seen = ()
        self.follows_shapes = rule.follows_shapes
        self.has_begun = False
        self.edits = -1
        self.function = rule.instance()
        plainly = None if rule.nodewise is None else rule.nodewise.concerns
        self.concerns = getattr(self.function, "concerns", plainly)
        self.hopes: dict[int, bool] = {}
        own = rule.check if rule.text or rule.is_nodewise else self.function
        self.looks_afar = own is not None and not rule.once

    def candidates(self, worklist: Worklist) -> dict[Graph, list[Node]]:
        """Return the nodes to look at, by graph, in topological order."""
        if self.has_begun and (self.is_local or worklist.edits == self.edits):
            counts = self.rule.counts_uses
            return worklist.new_since(self.seen, self.heads, counts_uses=counts)
        self.has_begun = True
        self.seen = worklist.forget_before()
        self.edits = worklist.edits
        ops = self.rule.demand.operators
        return {graph: worklist.all_of(graph, self.heads) for graph in worklist.graphs_with(ops)}


@dataclass
class RewriteDriver:
    """Applies rules to one model.

    Attributes:
        model: The model, which is edited in place.
        rules: The rules.
        observers: Told of everything; only what all of them admit is done.
        loops: Stops rules that would go on for ever.
    """

    model: Model
    rules: Sequence[RewriteRule]
    observers: Sequence[RewriteObserver]
    loops: LoopDetector

    def __post_init__(self) -> None:
        self.progress = [RuleProgress(rule) for rule in by_priority(self.rules)]
        self.worklist = Worklist(self.model, Concern.of(self.rules))
        self.names = NewNames(self.model)
        self.functions = ImportedFunctions(self.model, self.worklist.graph_added)
        self.counts = {rule.qualified_name: 0 for rule in self.rules}
        self.applied = 0
        self.refused: dict[tuple[str, Node], Rejection] = {}
        self.round = 0
        self.made: set[Node] = set()

    @property
    def is_over(self) -> bool:
        """Whether an observer wants no more."""
        return any(observer.is_over for observer in self.observers)

    def run(self) -> int:
        """Apply the rules until none matches; return how many rounds changed something.

        Raises:
            RewriteLimitError: They would go on without an end.
        """
        rounds = 0
        inferences = 0
        while not self.is_over:
            self.round += 1
            before, counts = self.applied, dict(self.counts)
            for progress in self.progress:
                self._take_turn(progress)
                if self.is_over:
                    break
            if self.applied > before:
                rounds += 1
                self.loops.check_size(
                    [name for name, count in self.counts.items() if count > counts[name]]
                )
                if self.worklist.takes_new_sizes() and self.model.forget():
                    for progress in self.progress:
                        progress.has_begun = progress.has_begun and not progress.follows_shapes
                continue
            if not rounds:
                break
            if inferences < _INFERENCES and self.infer_again():
                inferences += 1
            elif not self._look_everywhere():
                break
        return rounds

    def infer_again(self) -> bool:
        """Infer types again if rules asked for some; tell whether more is known now."""
        changed = self.model.infer_again()
        if changed:
            self.model.forget()
        for value in changed:
            self.worklist.value_changed(value)
        return bool(changed)

    def _look_everywhere(self) -> bool:
        """Let rules that may depend on anything look at all nodes again; tell if there are any."""
        edits = self.worklist.edits
        due = [each for each in self.progress if each.looks_afar and each.edits != edits]
        for progress in due:
            progress.has_begun = False
        return bool(due)

    def remaining(self) -> tuple[Rejection, ...]:
        """Return the last refusal of each rule at each node that is still there."""
        order = {each.rule.qualified_name: rank for rank, each in enumerate(self.progress)}
        graphs = self.worklist.graphs
        left = [item for item in self.refused.values() if self.worklist.is_listed(item.root)]

        def place(item: Rejection) -> tuple[int, int, int]:
            root = item.root
            return order[item.rule.qualified_name], graphs[root.graph], root.position

        return tuple(sorted(left, key=place))

    def _take_turn(self, progress: RuleProgress) -> None:
        rule = progress.rule
        if rule.once and progress.has_begun:
            return
        self.made = set()
        candidates = progress.candidates(self.worklist)
        count = sum(map(len, candidates.values()))
        if not count:
            return
        with self._announced(rule, count):
            self._visit(progress, candidates)

    @contextmanager
    def _announced(self, rule: RewriteRule, count: int) -> Iterator[None]:
        """Tell that the turn of *rule* begins, with so many nodes to look at, and that it ends."""
        before = self.applied
        for observer in self.observers:
            observer.turn_started(self.round, rule, count)
        yield
        for observer in self.observers:
            observer.turn_ended(rule, self.applied - before)

    def _visit(self, progress: RuleProgress, candidates: dict[Graph, list[Node]]) -> None:
        rule, worklist = progress.rule, self.worklist
        edits = worklist.edits
        asked = [observer for observer in self.observers if observer.may_refuse]
        may_apply = self._may_apply(progress) if not asked else None
        name = rule.qualified_name
        for graph, roots in candidates.items():
            if not rule.holds_for(graph):
                continue
            for root in roots if rule.producers_first else reversed(roots):
                if worklist.edits != edits and not worklist.is_listed(root):
                    continue
                if may_apply is not None and not may_apply(root):
                    if self.refused:
                        self.refused.pop((name, root), None)
                    continue
                if asked and not all(observer.admits(rule, root) for observer in asked):
                    continue
                if self._rewrite_at(progress, root) and self.is_over:
                    return

    def _may_apply(self, progress: RuleProgress) -> Callable[[Node], bool] | None:
        """Return what tells cheaply whether a rule may apply at a node; if not, it does not."""
        if progress.rule.is_nodewise:
            return progress.concerns
        fingerprints, hopes = self.worklist.fingerprints, progress.hopes
        program = progress.rule.matcher.program

        def may_match(root: Node) -> bool:
            number = fingerprints.number(root)
            hope = hopes.get(number)
            if hope is None:
                hope = hopes[number] = fingerprints.may_hold(number, program)
            return hope

        return may_match

    def apply_at(self, rule: RewriteRule, root: Node) -> bool:
        """Try one of the rules at one node, out of turn; tell whether it was applied."""
        progress = next(each for each in self.progress if each.rule is rule)
        self.made = set()
        with self._announced(rule, 1):
            return self._rewrite_at(progress, root)

    def _rewrite_at(self, progress: RuleProgress, root: Node) -> bool:
        rule = progress.rule
        key = (rule.qualified_name, root)
        self.refused.pop(key, None)
        first: Rejection | None = None
        was = (root, root.outputs)
        try:
            for match in self._matches(rule, root):
                outcome = self._attempt(progress, match)
                if isinstance(outcome, Change):
                    self._note(rule, was, outcome)
                    return True
                first = first or outcome
        except StepBudgetExceededError as error:
            first = Rejection(rule, root, "budget", error.message, root)
        if first is not None:
            self.refused[key] = first
            for observer in self.observers:
                observer.refused(first)
        return False

    def _matches(self, rule: RewriteRule, root: Node) -> Iterator[Match]:
        if rule.is_nodewise:
            alone = whole_node(rule, root)
            if alone is not None:
                yield alone
            return
        for state in rule.matcher.solutions(root):
            match = read_match(rule, root, state)
            if match is not None:
                yield match

    def _attempt(self, progress: RuleProgress, match: Match) -> Change | Rejection | None:
        rule = progress.rule
        if rule.once and not self.made.isdisjoint(match.nodes):
            return None
        if not rule.is_nodewise:
            verdict = judge(match)
            if isinstance(verdict, Rejection):
                return verdict
            match = verdict
        draft = draft_replacement(match, progress.function)
        if not isinstance(draft, Draft):
            return draft
        for observer in self.observers:
            if not observer.wants(match):
                return None
            if reason := observer.objection(match, draft):
                return match.reject(reason)
        self.loops.note(match, draft)
        outcome = Replacer(match, draft, self.names, self.functions, self.worklist).replace()
        if isinstance(outcome, Change):
            self.made.update(outcome.added)
            self.loops.note_birth(match, outcome.added)
        return outcome

    def _note(self, rule: RewriteRule, root: tuple[Node, Outputs], change: Change) -> None:
        """Record an application; *root* is the root and what it made before."""
        removed = [(node, node.outputs) for node in change.removed]
        added = [(node, node.outputs) for node in change.added]
        made = (outputs for _, outputs in (root, *removed, *added))
        self.applied += 1
        application = Application(
            self.applied,
            self.round,
            rule.qualified_name,
            scope_of(change.match.root.graph),
            identify(*root),
            tuple([identify(*each) for each in removed]),
            tuple([identify(*each) for each in added]),
            frozenset([value.name for outputs in made for value in outputs if value]),
        )
        self.counts[rule.qualified_name] += 1
        for observer in self.observers:
            observer.applied(application)
        self.loops.check(rule.qualified_name, self.counts[rule.qualified_name])


# The way in: apply rules until nothing changes.


class Rewriting(NamedTuple):
    """What rules did to a model.

    Attributes:
        counts: How often each rule was applied.
        rounds: How many rounds changed something.
        refused: Why other matches, at nodes that are still there, were not replaced.
        applications: What was done, in order.
    """

    counts: dict[str, int]
    rounds: int
    refused: tuple[Rejection, ...]
    applications: Sequence[Application]


class Restriction(NamedTuple):
    """A rule, perhaps at one node only.

    Attributes:
        rule: The rule's name; "" for all.
        node: Name of a node or of a value that it makes; "" for all.
    """

    rule: str
    node: str = ""

    def covers(self, rule: RewriteRule, root: Node) -> bool:
        """Tell whether it is about *rule* at *root*."""
        if self.rule not in ("", rule.name, rule.qualified_name):
            return False
        names = [root.name, *(output.name for output in root.made)]
        return not self.node or self.node in names


@dataclass
class RestrictingObserver(RewriteObserver):
    """Keeps a log, and restricts where rules are tried and how often they are applied.

    Attributes:
        only: If not empty, nothing else is tried.
        skip: What is not tried.
        limit: After how many applications the rewrite ends; None for no limit.
        log: What was done.
    """

    only: Sequence[Restriction] = ()
    skip: Sequence[Restriction] = ()
    limit: int | None = None
    log: list[Application] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether the limit is reached."""
        return self.limit is not None and len(self.log) >= self.limit

    @property
    def may_refuse(self) -> bool:
        """Whether there is a restriction."""
        return bool(self.only or self.skip)

    def admits(self, rule: RewriteRule, root: Node) -> bool:
        """Tell whether the restrictions let *rule* be tried at *root*."""
        if self.only and not any(item.covers(rule, root) for item in self.only):
            return False
        return not self.skip or not any(item.covers(rule, root) for item in self.skip)

    def applied(self, application: Application) -> None:
        """Keep the log."""
        self.log.append(application)


def rewrite(
    model: Model,
    rules: Sequence[RewriteRule],
    observer: RestrictingObserver | None = None,
    *,
    watchers: Sequence[RewriteObserver] = (),
    most: int | None = None,
) -> Rewriting:
    """Apply *rules*, in listed order, until none matches; the model is edited in place.

    Args:
        model: The model.
        rules: The rules; those listed first have their turn first in every round.
        observer: Keeps the log, and may restrict what is done.
        watchers: Other observers; they may end the rewrite.
        most: How often a rule may be applied; None for a limit that fits the size of the model.

    Raises:
        RewriteLimitError: They would go on without an end; the message names the rules.
    """
    observer = observer or RestrictingObserver()
    driver = RewriteDriver(model, rules, [observer, *watchers], LoopDetector(model, most))
    rounds = driver.run()
    state_calls(model)
    return Rewriting(driver.counts, rounds, driver.remaining(), tuple(observer.log))


# Do what a plan lists, in its order, and nothing else.
#
# The driver tries the same rules at the same nodes as without a plan, so that rules with a memory
# remember the same. But it applies nothing other than the next entry of the plan. An entry that the
# driver does not come to, because the plan was edited, is tried out of turn.


class Missing(NamedTuple):
    """An entry of a plan that does not fit."""

    entry: PlanEntry
    reason: str


class Replayed(NamedTuple):
    """What a plan did to a model.

    Attributes:
        rewriting: What was done; it says nothing of matches that the plan does not list.
        missing: The entries that did not fit.
    """

    rewriting: Rewriting
    missing: tuple[Missing, ...]


def replay(
    model: Model,
    rules: Sequence[RewriteRule],
    *,
    entries: Sequence[PlanEntry],
    skip_missing: bool = False,
    watchers: Sequence[RewriteObserver] = (),
) -> Replayed:
    """Apply what *entries* list, each once and in order; the model is edited in place.

    Args:
        model: The model.
        rules: The rules that the entries name, and others.
        entries: What to do.
        skip_missing: Whether to go on after an entry that does not fit.
        watchers: Other observers; they may end the rewrite.

    Raises:
        RewriteLimitError: The entries undo each other again and again.
    """
    guide = _Guide(entries)
    driver = RewriteDriver(model, rules, [guide, *watchers], LoopDetector(model))
    return _Replay(driver, guide, skip_missing=skip_missing).run()


class _Guide(RestrictingObserver):
    """Admits nothing but the next entry of a plan.

    Attributes:
        position: How many entries are done or given up.
        rejection: Why the next one was last refused.
    """

    def __init__(self, entries: Sequence[PlanEntry]) -> None:
        super().__init__()
        self.entries = entries
        self.position = 0
        self.rejection: Rejection | None = None

    @property
    def is_over(self) -> bool:
        """Whether the plan is done."""
        return self.position >= len(self.entries)

    @property
    def next(self) -> PlanEntry:
        """The entry that is next; there is one unless it is over."""
        return self.entries[self.position]

    def wants(self, match: Match) -> bool:
        """Tell whether *match* is next."""
        entry, root = self.next, match.root
        if match.rule.qualified_name != entry.rule or not _makes(root, entry):
            return False
        return scope_of(root.graph) == entry.scope

    def applied(self, application: Application) -> None:
        """Go on to the next entry."""
        super().applied(application)
        self.position += 1

    def refused(self, rejection: Rejection) -> None:
        """Remember why."""
        self.rejection = rejection


class _Replay:
    def __init__(self, driver: RewriteDriver, guide: _Guide, *, skip_missing: bool) -> None:
        self.driver = driver
        self.guide = guide
        self.skip_missing = skip_missing
        self.rules = {each.rule.qualified_name: each.rule for each in driver.progress}
        self.missing: list[Missing] = []
        self.inferred_at: set[int] = set()

    def run(self) -> Replayed:
        """Go through the plan."""
        rounds = 0
        while not self.driver.is_over:
            rounds += self.driver.run()
            if self.driver.is_over:
                break
            self.driver.round += 1
            if self._apply_out_of_turn():
                rounds += 1
            elif not self._infer_again() and not self._give_up():
                break
        state_calls(self.driver.model)
        done = Rewriting(self.driver.counts, rounds, (), tuple(self.guide.log))
        return Replayed(done, tuple(self.missing))

    def _apply_out_of_turn(self) -> bool:
        """Apply the next entries as far as they fit; tell whether one did."""
        before = self.guide.position
        while not self.driver.is_over and not self._try(self.guide.next):
            pass
        return self.guide.position > before

    def _infer_again(self) -> bool:
        """Infer types again, and let rules forget; once for each entry that does not fit.

        A rule may remember something that is not in the plan.

        Returns:
            Whether this was the first time for the entry.
        """
        is_new = self.guide.position not in self.inferred_at
        self.inferred_at.add(self.guide.position)
        if is_new:
            self.driver.infer_again()
            self.driver.model.forget()
        return is_new

    def _give_up(self) -> bool:
        """Note that the next entry does not fit; tell whether to go on with those behind it."""
        entry = self.guide.next
        self.missing.append(Missing(entry, self._try(entry)))
        self.guide.position += self.skip_missing
        return self.skip_missing

    def _try(self, entry: PlanEntry) -> str:
        """Apply *entry*; return "" or why it does not fit."""
        rule = self.rules.get(entry.rule)
        if rule is None:
            return f"there is no rule {entry.rule!r}"
        graphs = [graph for graph in self.driver.worklist.graphs if scope_of(graph) == entry.scope]
        reason = f"the model has no graph {entry.scope!r}"
        for graph in graphs:
            node, reason = _find(graph, entry)
            if node is None:
                continue
            if not rule.holds_for(graph):
                reason = f"the rule does not hold for opset {graph.opset_imports.get('', 0)}"
                continue
            self.guide.rejection = None
            if self.driver.apply_at(rule, node):
                return ""
            reason = why_not(rule, node, self.guide.rejection)
        return reason


def _find(graph: Graph, entry: PlanEntry) -> tuple[Node | None, str]:
    """Return the node that *entry* is about; or None, and why there is none."""
    value = graph.values.get(entry.output)
    if value is None:
        return None, f"{entry.output!r} does not exist there"
    if value.producer is None:
        return None, f"{entry.output!r} is not made by a node"
    if value.producer.qualified_op != entry.op_type:
        maker = f"{value.producer.qualified_op} {value.producer.label!r}"
        return None, f"{entry.output!r} is made by {maker}, not by {entry.op_type}"
    return value.producer, ""


def _makes(node: Node, entry: PlanEntry) -> bool:
    if node.qualified_op != entry.op_type:
        return False
    return any(output is not None and output.name == entry.output for output in node.outputs)
