"""What the tests of repeated blocks share: models as text, and a look at everything at once."""

from __future__ import annotations

import itertools
from textwrap import dedent
from typing import TYPE_CHECKING

import onnx

from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import to_proto
from dplcli.passes.repeat import outline_repeats
from dplcli.settings import RepeatSettings
from tests.support.helpers import check_sound, model_from_bytes, print_model, proto_from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dplcli.ir import Model
    from dplcli.passes.repeat import Family, RepeatResult

ANY_SAVING = RepeatSettings(min_saving=0)


def repeated(
    before: str | bytes, options: RepeatSettings = ANY_SAVING
) -> tuple[Model, RepeatResult, bytes]:
    """Outline what repeats in a model; return it, what was done, and the model written."""
    data = proto_from_text(before).SerializeToString() if isinstance(before, str) else before
    model = model_from_bytes(data)
    result = outline_repeats(model, options)
    check_structure(model)
    return model, result, to_proto(model).SerializeToString(deterministic=True)


def check_repeat(
    before: str,
    families: Sequence[str],
    *,
    after: str | None = None,
    options: RepeatSettings = ANY_SAVING,
) -> onnx.ModelProto:
    """Outline what repeats, and check all that must hold of the result.

    Args:
        before: The model as ONNX text.
        families: What is to be found, as :func:`describe` writes it.
        after: What :func:`print_model` prints afterwards; None if that does not matter.
        options: What counts as a repeated block.

    Returns:
        The model written.
    """
    model, result, written = repeated(before, options)
    assert [describe(family) for family in result.families] == list(families)
    if after is not None:
        assert print_model(model) == dedent(after).strip()
    assert repeated(before, options)[2] == written
    proto: onnx.ModelProto = onnx.ModelProto.FromString(written)
    check_sound(proto_from_text(before), proto)
    if not families:
        assert proto.graph == proto_from_text(before).graph
    _, again, same = repeated(written, options)
    assert again.families == []
    assert onnx.ModelProto.FromString(same) == proto
    return proto


def describe(family: Family) -> str:
    """Write ``layer: a,b c,d``: the first outputs of the nodes of each block."""
    blocks = [",".join(_label(p.match.nodes)) for p in family.partitions]
    return f"{family.function.name}: {' '.join(blocks)}"


def _label(nodes: Sequence[object]) -> list[str]:
    return [node.outputs[0].name for node in nodes]  # type: ignore[attr-defined]  # all have one


def chain(blocks: int, block: Callable[[int, str], tuple[str, str]], *, last: str = "Neg") -> str:
    """Write a graph of *blocks* one after the other, closed by a node that is in none.

    Args:
        blocks: How many.
        block: Given number and input, writes the nodes and tells what they make.
        last: The operator that closes it.
    """
    value = "x"
    lines = []
    for number in range(blocks):
        text, value = block(number, value)
        lines.append(text)
    return f"g (float[4] x) => (float[4] z) {{ {' '.join(lines)} z = {last} ({value}) }}"


def numbered(template: str, makes: str = "d") -> Callable[[int, str], tuple[str, str]]:
    """Return a block from a text in which ``#`` is its number and ``@`` what it reads."""

    def write(number: int, value: str) -> tuple[str, str]:
        return template.replace("#", str(number)).replace("@", value), f"{makes}{number}"

    return write


def weights(names: str, count: int) -> str:
    """Declare vectors ``w0``, ``w1``, … for each name."""
    items = itertools.product(names.split(), range(count))
    return ", ".join(
        f"float[4] {name}{number} = {{{number + 1}, 2, {-number}, 0.5}}" for name, number in items
    )
