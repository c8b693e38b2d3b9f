"""Compare two models by dataflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dplcli.diff.alignment import align
from dplcli.diff.comparison import Comparison
from dplcli.diff.functions import aliases_of, function_changes, pair_functions
from dplcli.diff.interface import pair_inputs, pair_outputs, pair_places
from dplcli.diff.reading import Numbers, Reader
from dplcli.diff.remarks import mapping_remarks, remarks_on
from dplcli.diff.result import ModelDiff, OpsetChange, Remark
from dplcli.diff.side import Side, input_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dplcli.diff.pairing import Pairing
    from dplcli.diff.result import Facet, GraphDiff
    from dplcli.ir import Graph, Model, Value

    Statements = Mapping[tuple[str, str], str]

DEFAULT_IGNORED: frozenset[Facet] = frozenset(
    {"names", "order", "doc", "metadata", "value-info", "storage"}
)
"""What does not count unless the reader says so: no number that a model computes depends on it."""

_SECOND = 1


class Differ:
    """Compares two models.

    Attributes:
        steps: How many neighbours were looked at, for tests of growth.

    Args:
        first: One model.
        second: The other.
        statements: What either model says of itself, by facet and key.
    """

    def __init__(
        self,
        first: Model,
        second: Model,
        statements: tuple[Statements, Statements] = ({}, {}),
    ) -> None:
        """Compare nothing yet."""
        self.models = (first, second)
        self.statements = statements
        self.steps = 0
        self._functions = pair_functions(first, second)
        self._readers = (Reader({}), Reader(aliases_of(self._functions)))

    def result(self, ignored: frozenset[Facet] = DEFAULT_IGNORED) -> ModelDiff:
        """Compare the main graphs, what is inside them, and the functions."""
        first, second = self.models
        graphs = list(self._graphs(first.graph, second.graph, None, is_main=True))
        for one, other in self._functions:
            graphs += self._graphs(one.body, other.body, None, is_main=False)
        return ModelDiff(
            graphs=tuple(graphs),
            functions=tuple(function_changes(first, second, self._functions)),
            opsets=tuple(_opset_changes(first, second)),
            remarks=tuple(self._remarks()),
            ignored=ignored,
        )

    def _graphs(
        self, first: Graph, second: Graph, outer: Pairing | None, *, is_main: bool
    ) -> Iterator[GraphDiff]:
        """Compare two graphs and, as deep as they nest, the bodies of the nodes they share."""
        numbers = Numbers() if outer is None else outer.sides[0].numbers
        inputs = (pair_inputs if is_main else pair_places)(first.inputs, second.inputs)
        sides = tuple(
            self._side(graph, which, numbers, [pair[which] for pair in inputs], outer)
            for which, graph in enumerate((first, second))
        )
        outputs = pair_outputs(sides[0], sides[1], by_name=is_main)
        pairing, steps = align((sides[0], sides[1]), inputs, outputs)
        self.steps += steps
        remarks = remarks_on(pairing, named=is_main)
        yield Comparison(pairing, named=is_main).result(remarks)
        for node in sides[0].nodes:
            partner = pairing.forth.get(node)
            if partner is None:
                continue
            for name, body in node.subgraphs.items():
                if name in partner.subgraphs:
                    yield from self._graphs(body, partner.subgraphs[name], pairing, is_main=False)

    def _side(
        self,
        graph: Graph,
        which: int,
        numbers: Numbers,
        inputs: list[Value],
        outer: Pairing | None,
    ) -> Side:
        given = {value: input_number(numbers, graph, k) for k, value in enumerate(inputs)}

        def nowhere(value: Value) -> int:
            return numbers(("nowhere", which, value.name))

        resolve = nowhere if outer is None else outer.resolver(which)
        reader = self._readers[which]
        return Side(graph, reader, numbers, given=given, outer=resolve, tag=which)

    def _remarks(self) -> Iterator[Remark]:
        first, second = self.statements
        for facet, key in sorted(first.keys() | second.keys()):
            old, new = first.get((facet, key), ""), second.get((facet, key), "")
            if old != new:
                yield Remark(cast("Facet", facet), key, old, new)
        for domain, old_version, new_version in _imports(*self.models, used=False):
            versions = [str(v or "") for v in (old_version, new_version)]
            yield Remark("metadata", f"import of {domain or 'ai.onnx'}", *versions)
        for one, other in self._functions:
            where = f"function {one.domain}::{one.name}"
            yield from mapping_remarks(where, one.metadata, other.metadata)


def _opset_changes(first: Model, second: Model) -> Iterator[OpsetChange]:
    for domain, old, new in _imports(first, second, used=True):
        yield OpsetChange(domain, old, new)


def _imports(
    first: Model, second: Model, *, used: bool
) -> Iterator[tuple[str, int | None, int | None]]:
    """Yield the imports that differ, those of domains that nodes of either model are in or not."""
    in_use = {
        node.domain for model in (first, second) for graph in model.graphs() for node in graph
    }
    old, new = first.opset_imports, second.opset_imports
    for domain in sorted(old.keys() | new.keys()):
        if old.get(domain) != new.get(domain) and (domain in in_use) is used:
            yield domain, old.get(domain), new.get(domain)
