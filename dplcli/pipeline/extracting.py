"""Cut a part out of a model: what computes some values from others, as a model of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dplcli.analysis.extract import Wiring, left_out, named_values, operators_of, part_between
from dplcli.errors import InvalidModelError, UsageError, counted, opt, some_of
from dplcli.files import resolved
from dplcli.onnx_io import check_external_data, check_imports, check_model, load_model
from dplcli.onnx_io.external_data import locations_of, pack
from dplcli.onnx_io.source import source_of
from dplcli.outcomes.written import Delivery, ExtractOutcome
from dplcli.passes.repeat import find_layers
from dplcli.pipeline.writing import check_output, default_output, say_nothing
from dplcli.settings import RepeatSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dplcli.ir import Model
    from dplcli.settings import ExtractSettings


def extract(model_path: Path, settings: ExtractSettings) -> ExtractOutcome:
    """Write what computes some values from others as a model of its own.

    It has the nodes, weights and functions that it needs and no others, under their names. External
    data that it needs goes into one file beside it, ``OUTPUT.data``, and is never held in memory.
    Inputs of the model that are needed as well are inputs of the part, too.

    Args:
        model_path: The model.
        settings: From which values to which, and where the part is written.

    Raises:
        UsageError: A value is not there, plays no part, or has no type that is known.
        DplError: The model cannot be used, or the output cannot be written.
    """
    say, output = settings.progress or say_nothing, settings.output
    output = output or default_output(model_path, settings.result)
    check_output(model_path, output, in_place=False)
    say(f"reading {model_path.name}")
    model = load_model(model_path)
    check_imports(model)
    check_external_data(model)
    if resolved(output) in {resolved(model_path.parent / place) for place in locations_of(model)}:
        raise UsageError(f"{output}: is where the model's weights lie")
    wiring = Wiring(source_of(model).proto)
    starts = named_values(wiring, opt("from_"), settings.from_)
    ends = named_values(wiring, opt("to"), settings.to)
    say("extracting")
    if settings.layers:
        starts, ends = _round_layers(model, wiring, settings.layers)
    ends = ends or [info.name for info in wiring.model.graph.output]
    values = [*model.graph.inputs, *model.graph.initializers]
    values += [value for node in model.graph for value in node.outputs if value is not None]
    types = ((value.name, value.known_type()) for value in values)
    part = part_between(
        wiring, starts, ends, {name: known for name, known in types if known is not None}
    )
    say("writing")
    with pack(part, [model_path.parent], output) as written:
        objection = check_model(written.path)
        if objection and not check_model(model_path):
            for info in (*part.graph.input, *part.graph.output):
                kind = info.type
                if kind.HasField("tensor_type") and not kind.tensor_type.HasField("shape"):
                    raise UsageError(
                        f"{info.name!r}: its shape is not stated and does not follow, and what a "
                        "model is given and returns has to have one",
                        hint="cut at another value, or state the shape in value_info",
                    )
            raise InvalidModelError(f"the part is not a valid model: {objection}")
        size, data = written.path.stat().st_size, written.data_size
        written.commit()
    stored = {tensor.name for tensor in part.graph.initializer}  # old files list these as inputs
    inputs = tuple(info.name for info in part.graph.input if info.name not in stored)
    return ExtractOutcome(
        label=model_path.name,
        delivery=Delivery(output=output, size=size),
        inputs=inputs,
        outputs=tuple(info.name for info in part.graph.output),
        nodes=(len(wiring.nodes), len(part.graph.node)),
        weights=len(part.graph.initializer) + len(part.graph.sparse_initializer),
        operators=operators_of(part),
        data=data,
        notes=(*model.notes, *_also_needed(starts, inputs), *left_out(wiring, part)),
    )


def _round_layers(model: Model, wiring: Wiring, asked: str) -> tuple[list[str], list[str]]:
    """Return what flows into layers from the rest of the model, and what flows out of them.

    Raises:
        UsageError: There are no such layers.
    """
    layers = find_layers(model, RepeatSettings())
    span = re.fullmatch(r"(\d+)(:(\d+))?", asked)
    first, end = (0, 0) if span is None else (int(span[1]), int(span[3] or int(span[1]) + 1))
    if not first < end <= len(layers):
        there = f"the model has layers 0:{len(layers)}" if layers else "nothing in it is repeated"
        raise UsageError(f"{opt('layers')} {asked}: there are no such layers: {there}")
    outputs = (output for layer in layers[first:end] for node in layer for output in node.outputs)
    made = {output.name for output in outputs if output is not None} & wiring.makers.keys()
    rows = wiring.with_constants({wiring.makers[name] for name in made})
    given = {info.name for info in wiring.model.graph.input}
    starts = [name for name in wiring.entering(rows) if name not in given]
    return starts, wiring.leaving(rows)


def _also_needed(start: Sequence[str], inputs: Sequence[str]) -> Iterator[str]:
    more = [name for name in inputs if name not in start] if start else []
    if more:
        needed = counted(len(more), "input")
        yield f"the part needs {needed} of the model as well: {some_of(more)}"
