"""Looking at a model, also at a picture of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.errors import UsageError, did_you_mean
from dplcli.escaping import inert, one_line
from dplcli.ir.model import is_exact
from dplcli.ir.operators import flops
from dplcli.onnx_io import check_sizes, load_model, open_sizes
from dplcli.onnx_io.infer import infer_for_sizes
from dplcli.outcomes.inspecting import ViewOutcome
from dplcli.settings import RepeatSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dplcli.ir import Graph, Model, Node, Shape, TensorType, Value


def inspect(model_path: Path) -> Model:
    """Load a model to look at it.

    Raises:
        DplError: The file is no model.
    """
    model = load_model(model_path)
    model.infer()
    return model


def view(
    model_path: Path, shape: Mapping[str, int | Sequence[int] | str] | None = None
) -> ViewOutcome:
    """Load a model, with the types of its values and the costs of its nodes, to draw it.

    Args:
        model_path: The file.
        shape: For the costs, a number per symbolic dimension of the inputs or per ``input:axis``,
            and whole shapes by input.

    Raises:
        DplError: The file is no model.
        UsageError: No input has such a dimension.
    """
    model = inspect(model_path)
    from dplcli.passes.repeat import find_layers  # noqa: PLC0415  # only for a drawing
    from dplcli.verify.check import sizes_and_shapes  # noqa: PLC0415  # only for a drawing

    sizes, shapes, model.sums = sizes_and_shapes(shape or {})
    given = sizes_in(model, shapes) | sizes
    check_sizes(model, given)
    missing = [name for name in open_sizes(model) if name not in given]
    types: Mapping[Value, TensorType] = {}
    if given or not (missing or _is_inferred(model)):
        types, _ = exact_types(model, given)

    def shape_of(value: Value) -> Shape | None:
        kind = types.get(value) or value.known_type()
        return None if kind is None else kind.shape

    costs = {node: flops(node, shape_of) for graph in model.graphs() for node in graph}
    return ViewOutcome(
        label=model_path.name,
        model=model,
        notes=tuple(model.notes),
        costs={node: cost for node, cost in costs.items() if cost is not None},
        open_sizes=tuple(missing),
        layers=find_layers(model, _LAYERS),
    )


_LAYERS = RepeatSettings(min_repeats=3, min_nodes=20, min_saving=0.5)
"""What is drawn as one."""


def _is_inferred(model: Model) -> bool:
    """Tell whether inference found all sizes, so that nothing is left to derive."""
    outputs = (v for g in model.graphs() for node in g for v in node.outputs if v is not None)
    return all(is_exact(value.known_type()) for value in outputs)


def exact_types(model: Model, sizes: Mapping[str, int]) -> tuple[Mapping[Value, TensorType], str]:
    """Find the types of a loaded model's values, for inputs of given sizes.

    Args:
        model: The model, as it was loaded.
        sizes: A number per symbolic dimension of the inputs, or per ``input:axis``.

    Returns:
        The types of values of the main graph, of the graphs inside it and of functions, as far as
        values do not have them; and why some are missing ("" if nothing went wrong).

    Raises:
        UsageError: No input has such a dimension.
    """
    if sizes:
        inference = infer_for_sizes(model, sizes)
        return inference.types, inference.problem
    if model.kinds or (not model.functions and all(map(_is_stated, model.graph.and_inner()))):
        return {}, ""  # every type is known
    found = model.infer()
    return dict(found.types), found.problem


def _is_stated(graph: Graph) -> bool:
    outputs = (value for node in graph for value in node.outputs if value is not None)
    return all(is_exact(value.declared_type) for value in outputs)


def sizes_in(model: Model, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the sizes that the *shapes* of inputs give to dimensions that *model* leaves open."""
    sizes: dict[str, int] = {}
    for value in model.graph.inputs:
        shape, declared = shapes.get(value.name), value.declared_type
        if shape is None or declared is None or declared.shape is None:
            continue
        for axis, (dim, size) in enumerate(zip(declared.shape, shape, strict=False)):
            if not isinstance(dim, int):
                sizes.setdefault(dim or f"{value.name}:{axis}", size)
    return sizes


def find_nodes(model: Model, name: str) -> list[Node]:
    """Return the nodes whose name, or an output's, is *name*; graphs in order.

    If no name is *name*, a name counts that dpl shows like it: invisible characters are escaped.

    Raises:
        UsageError: There is none.
    """
    if not name:
        raise UsageError("'': the name is empty")
    bearers: dict[str, list[Node]] = {}
    for graph in model.graphs():
        for node in graph:
            for label in {node.name, *(out.name for out in node.outputs if out is not None)}:
                bearers.setdefault(label, []).append(node)
    if name in bearers:
        return bearers[name]
    shown = [label for label in bearers if name in _shown(label)]
    if len(shown) == 1:
        return bearers[shown[0]]
    if shown:
        raise UsageError(
            f"{name!r}: {len(shown)} names are shown like this: {', '.join(map(repr, shown))}",
            hint="name another value that the node makes",
        )
    raise UsageError(
        f"{name!r}: no node has this name or makes a value of this name",
        hint=did_you_mean(name, sorted(bearers)) or "dpl inspect --nodes lists them",
    )


def _shown(name: str) -> set[str]:
    """Return the forms in which tables, lines and messages show a name."""
    line = one_line(name, None)
    return {line, inert(line), repr(name)[1:-1]}
