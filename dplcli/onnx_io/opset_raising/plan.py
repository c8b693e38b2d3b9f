"""What raising a model's opset would change, worked out before anything is changed."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from dplcli.onnx_io.attributes import graphs_of
from dplcli.onnx_io.opset_raising.bumps import bumps, rule_for
from dplcli.onnx_io.opset_raising.scopes import STANDARD, Scope, all_nodes, node_label
from dplcli.onnx_io.opset_raising.site import Refusal, Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onnx import FunctionProto, ModelProto, NodeProto, OperatorSetIdProto

    from dplcli.onnx_io.opset_raising.scopes import InferredTypes

    Key = tuple[str, str, str]


class AdaptedNode(NamedTuple):
    """One node that did not fit the new opset as it was.

    Attributes:
        op_type: Its operator before.
        name: Its name, or its first output where it has none.
        where: "" in the main graph, or " in ..." a body or a function.
    """

    op_type: str
    name: str
    where: str


class RefusedNode(NamedTuple):
    """One node that cannot be raised.

    Attributes:
        what: What it is and where.
        version: The opset that it cannot be raised to, though to the one before.
        reason: Why not.
    """

    what: str
    version: int
    reason: str


class Plan:
    """The changes that raise a model to another opset.

    Args:
        model: The model, which stays as it is until :meth:`apply`.
        target: The opset to raise it to.
        types: Types of its values.

    Attributes:
        target: As given.
        adapted: The nodes to change.
        refused: The nodes that cannot be raised; if there are any, the plan is void.
        raised_functions: The functions that import the standard at an older opset.
    """

    def __init__(self, model: ModelProto, target: int, types: InferredTypes) -> None:
        """Look at every node."""
        self.adapted: list[AdaptedNode] = []
        self.refused: list[RefusedNode] = []
        self._model = model
        self.target = target
        self._types = types
        self._functions = {_key_of_function(item): item for item in model.functions}
        self._calls = _Calls(model, self._functions)
        self._scopes: list[Scope] = []
        self.raised_functions: list[FunctionProto] = []
        before = imported_standard(model.opset_import)
        self._visit(Scope(model.graph, types), before)
        for function in model.functions:
            own = imported_standard(function.opset_import)
            if own is None and not function.opset_import:
                self._visit(Scope(function, types), before)
            elif own is None:
                self._visit(Scope(function, types), own)
            elif own < target:
                self.raised_functions.append(function)
                self._visit(Scope(function, types), own)

    def apply(self) -> None:
        """Edit the model."""
        for scope in reversed(self._scopes):
            scope.apply()
        imports = chain(
            self._model.opset_import, *(item.opset_import for item in self.raised_functions)
        )
        for entry in imports:
            if entry.domain in STANDARD:
                entry.version = self.target

    def _visit(self, root: Scope, version: int | None) -> None:
        """Look at the nodes of a graph, and of the bodies in it, outer ones first."""
        pending = deque([root])
        while pending:
            scope = pending.popleft()
            self._scopes.append(scope)
            for number, node in enumerate(scope.proto.node):
                if node.domain in STANDARD:
                    self._visit_node(node, version, scope, number)
                pending.extend(
                    Scope(body, self._types, scope, (number, name))
                    for name, body in graphs_of(node)
                )

    def _visit_node(self, node: NodeProto, version: int | None, scope: Scope, number: int) -> None:
        try:
            new = self._raised(node, version, scope)
        except Refusal as refusal:
            what = f"{node_label(node)}{scope.where}"
            self.refused.append(RefusedNode(what, refusal.version, str(refusal)))
            return
        if new is not None:
            scope.replaced[number] = new
            name = node.name or next(filter(None, node.output), "")
            self.adapted.append(AdaptedNode(node.op_type, name, scope.where))

    def _raised(self, node: NodeProto, version: int | None, scope: Scope) -> list[NodeProto] | None:
        """Return what takes a node's place, None if it stays.

        Raises:
            Refusal: It cannot be raised.
        """
        if version is None:
            raise Refusal("it is of the standard, of which no version is imported")
        try:
            steps = bumps(node.op_type, version, self.target)
        except Refusal:
            if _key_of_call(node) in self._functions:
                return None
            raise
        for step in steps:
            try:
                adapted = self._adapted(node, step, scope)
            except Refusal as refusal:
                refusal.version = step
                raise
            if adapted:
                return [
                    made
                    for new, written_for in adapted
                    for made in self._raised(new, written_for, scope) or [new]
                ]
        return None

    def _adapted(self, node: NodeProto, step: int, scope: Scope) -> Sequence[tuple[NodeProto, int]]:
        """Return what fits the schema of *step* in a node's place, nothing if it fits itself.

        Raises:
            Refusal: Nothing does, as far as dpl knows.
        """
        rule = rule_for(node.op_type, step)
        if rule is None:
            return ()
        if _key_of_call(node) in self._functions:
            raise Refusal("a function of the model has the name of its operator")
        if not node.output:
            raise Refusal("it has no output")
        site = Site(node, scope, step, self.target, self._calls.always_give)
        rule(site)
        return site.made


class _Calls:
    """The calls of a model's functions, looked up when first asked about."""

    def __init__(self, model: ModelProto, functions: Mapping[Key, FunctionProto]) -> None:
        """Look at nothing yet."""
        self._model = model
        self._functions = functions
        self._given: dict[tuple[Key, str], bool] = {}
        self._known: dict[Key, list[tuple[FunctionProto | None, dict[str, str]]]] | None = None

    def always_give(self, function: FunctionProto, attribute: str) -> bool:
        """Tell whether an attribute of a function has a value whenever it is called."""
        asked = (_key_of_function(function), attribute)
        if asked not in self._given:
            self._given[asked] = True  # should functions call each other in a circle
            declared = any(default.name == attribute for default in function.attribute_proto)
            self._given[asked] = declared or all(
                self._gives(caller, given, attribute) for caller, given in self._of(asked[0])
            )
        return self._given[asked]

    def _gives(
        self, caller: FunctionProto | None, given: Mapping[str, str], attribute: str
    ) -> bool:
        if attribute not in given:
            return False
        passed_on = given[attribute]
        return not passed_on or (caller is not None and self.always_give(caller, passed_on))

    def _of(self, key: Key) -> list[tuple[FunctionProto | None, dict[str, str]]]:
        """Return for each call who calls, and which attributes, referring to which of its own."""
        if self._known is None:
            self._known = {}
            for caller in (None, *self._functions.values()):
                for node in all_nodes(self._model.graph if caller is None else caller):
                    callee = _key_of_call(node)
                    if callee in self._functions:
                        given = {item.name: item.ref_attr_name for item in node.attribute}
                        self._known.setdefault(callee, []).append((caller, given))
        return self._known.get(key, [])


def imported_standard(imports: Iterable[OperatorSetIdProto]) -> int | None:
    """Return the version of the standard that is imported, the last one if there are several."""
    versions = [entry.version for entry in imports if entry.domain in STANDARD]
    return versions[-1] if versions else None


def _key_of_function(function: FunctionProto) -> Key:
    domain = "" if function.domain in STANDARD else function.domain
    return (domain, function.name, function.overload)


def _key_of_call(node: NodeProto) -> Key:
    domain = "" if node.domain in STANDARD else node.domain
    return (domain, node.op_type, node.overload)
