"""Models and model-local functions."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from dplcli.ir.graph import Graph
from dplcli.ir.scopes import scope_of
from dplcli.ir.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping
    from pathlib import Path

    from dplcli.ir.codec import Codec
    from dplcli.ir.node import Node
    from dplcli.ir.types import Attribute
    from dplcli.ir.value import Value

Memory = TypeVar("Memory")

_QUICKLY_CHECKED = 10_000
"""Nodes whose types onnx infers in a fraction of what a command takes to start."""

_MOST_REFUTATIONS = 5
"""Values named whose stated types are wrong: where a size was changed, all are."""


class Function:
    """A model-local function.

    Attributes:
        domain: Its domain.
        name: Its name in the domain.
        overload: Its overload, nearly always "".
        body: Inputs, outputs and nodes.
        attributes: Names of the declared attributes without a default.
        defaults: The declared attributes that have a default.
        metadata: ``metadata_props``.
        source: The opaque function it was loaded from; None if made by a pass.
    """

    __slots__ = (
        "attributes",
        "body",
        "defaults",
        "domain",
        "metadata",
        "name",
        "overload",
        "source",
    )

    def __init__(self, domain: str, name: str, body: Graph) -> None:
        """Create a function round *body*."""
        self.domain = domain
        self.name = name
        self.overload = ""
        self.body = body
        self.attributes: tuple[str, ...] = ()
        self.defaults: Mapping[str, Attribute] = {}
        self.metadata: Mapping[str, str] = {}
        self.source: object = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies it in a model: domain, name, overload."""
        return (self.domain, self.name, self.overload)


class Model:
    """A whole ONNX model.

    Attributes:
        codec: Decoder of the opaque sources.
        graph: The main graph.
        functions: Model-local functions by :attr:`Function.key`.
        ir_version: IR version of the file.
        opset_imports: Domain to version.
        source: The opaque model it was loaded from.
        path: The file it was loaded from, or None.
        may_have_external_data: False if tensors surely have no data in other files.
        notes: What a reader should know about the file (sorted nodes, failed inference, …).
        is_checked: Whether what the file states of types was compared with the graph.
        refuted: By value, what the file states of its type though the graph contradicts it.
        conflicts: What makes its nodes mean different things to different readers.
        implied: By node and input slot, constants for what the node keeps in attributes though
            later opsets have it as an input (:mod:`dplcli.ir.parameters`).
    """

    def __init__(self, codec: Codec) -> None:
        """Create an empty model."""
        self.codec = codec
        self.opset_imports: dict[str, int] = {}
        self.graph = Graph(self, self.opset_imports)
        self.functions: dict[tuple[str, str, str], Function] = {}
        self.ir_version = 0
        self.source: object = None
        self.path: Path | None = None
        self.may_have_external_data = True
        self.notes: list[str] = []
        self.conflicts: list[str] = []
        self.refuted: dict[Value, TensorType] = {}
        self.implied: dict[tuple[Node, int], Value] = {}
        self.is_checked = False
        self.on_inference: Callable[[], None] | None = None
        self._inferred: Mapping[Value, TensorType] | None = None
        self._tried: set[Node] = set()
        self._memories: dict[object, Any] = {}

    def graphs(self) -> Iterator[Graph]:
        """Iterate over every graph: main, then function bodies, each before those inside it."""
        yield from self.graph.and_inner()
        for function in self.functions.values():
            yield from function.body.and_inner()

    def memory(self, kind: Callable[[], Memory]) -> Memory:
        """Return the object of *kind* that is kept with this model; make it when first asked."""
        if kind not in self._memories:
            self._memories[kind] = kind()
        kept: Memory = self._memories[kind]
        return kept

    def forget(self) -> bool:
        """Drop the objects that :meth:`memory` keeps; tell whether there were any."""
        had_some = bool(self._memories)
        self._memories.clear()
        return had_some

    def inferred_types(self) -> Mapping[Value, TensorType]:
        """Types that shape inference adds to the declared ones; inferred once, when first asked."""
        if self._inferred is None:
            self.is_checked = True
            self._inferred = {}  # whoever asks meanwhile is told what the file states
            if self.on_inference is not None:
                self.on_inference()
            self._inferred, problem = self.codec.infer_types(self)
            if problem:
                self.notes.append(problem)
            self.notes += self._refutations()
        return self._inferred

    def check_statements(self) -> None:
        """See to it, once, that no type is believed that the file states and the graph contradicts.

        Reading a type does it.
        """
        if not self.is_checked:
            self.is_checked = True
            if not self.codec.statements_hold(self):
                self.inferred_types()

    def note_refutations(self) -> None:
        """As :meth:`check_statements`, to say so even if nobody reads a type; if it is cheap."""
        if sum(graph.node_count for graph in self.graphs()) <= _QUICKLY_CHECKED:
            self.check_statements()

    def refute(self, value: Value, stated: TensorType, found: TensorType | None) -> None:
        """Let *found*, which the graph makes of *value*, count, and not what the file states."""
        self.refuted.setdefault(value, stated)
        value.note_type(found or TensorType(None, None))

    def _refutations(self) -> list[str]:
        """Say which types the file states that are not so."""
        label = self.path or "the model"
        lines = []
        for value, stated in islice(self.refuted.items(), _MOST_REFUTATIONS):
            scope = scope_of(value.graph)
            what = f"output {value.name!r}" if value.is_graph_output else f"{value.name!r}"
            where = "" if scope == "main" else f" in {scope}"
            lines.append(
                f"{label}: {what}{where} is stated to be {stated}, and is {value.declared_type}; "
                "the statement is left as it is, and not relied on"
            )
        others = len(self.refuted) - len(lines)
        if others:
            lines.append(
                f"{label}: {others:,} more value{'s are' if others > 1 else ' is'} not what the "
                "file states"
            )
        return lines

    def infer_outputs(self, node: Node) -> None:
        """Infer the types of what a node made by a pass makes, and note them as declared.

        So are those that it needs for that. What fails is not tried again before the next edit.
        """
        pending = [node]
        opened: set[Node] = set()
        while pending:
            current = pending.pop()
            if current in self._tried:
                continue
            if current not in opened:
                opened.add(current)
                pending += [current, *_unknown_makers(current, opened)]
                continue
            for value, found in zip(current.outputs, self.codec.infer_node(current), strict=False):
                if value is not None and value.type_source is None:
                    value.type_source = found
            self._tried.add(current)

    def note_edit(self) -> None:
        """Let types that could not be inferred be tried again."""
        self._tried.clear()

    def infer_again(self) -> list[Value]:
        """Run shape inference over the model as it is now, if somebody asked for types before.

        Returns:
            The values of which more is known than before.
        """
        before = self._inferred
        if before is None or (all(map(is_exact, before.values())) and self._is_typed(before)):
            return []
        found, _ = self.codec.infer_types(self, anew=True)
        more = {
            value: known
            for value, known in found.items()
            if says_more(known, before.get(value, value.declared_type))
        }
        self._inferred = {**before, **more}
        for value, known in more.items():
            value.note_type(known)
        self.note_edit()
        return list(more)

    def _is_typed(self, inferred: Mapping[Value, TensorType]) -> bool:
        """Tell whether something is known of all that the file says how to make.

        What passes have made is inferred node by node; of what functions make nothing is known.
        """
        return all(
            output is None or output in inferred or output.type_source is not None
            for graph in self.graph.and_inner()
            for node in graph
            if node.source is not None
            for output in node.outputs
        )


def _unknown_makers(node: Node, opened: Container[Node]) -> list[Node]:
    """List the nodes made by passes that make inputs of *node* of which nothing is known."""
    unknown = [value for value in node.inputs if value is not None and value.type_source is None]
    makers = [value.producer for value in unknown]
    return [m for m in makers if m is not None and m.source is None and m not in opened]


def is_exact(known: TensorType) -> bool:
    """Tell whether every dimension is a number."""
    return known.shape is not None and all(type(dim) is int for dim in known.shape)


def says_more(found: TensorType, known: TensorType | None) -> bool:
    """Tell whether *found* has a dimension that *known* lacks, or a number for its symbol."""
    if found.shape is None:
        return False
    if known is None or known.shape is None:
        return True
    return any(
        (old is None and new is not None) or (isinstance(new, int) and not isinstance(old, int))
        for new, old in zip(found.shape, known.shape, strict=False)
    )
