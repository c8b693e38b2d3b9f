"""Pairs of small models that are easily taken for each other, or easily told apart wrongly.

They stand in verdicts.txt, one after the other. Each begins with its name, whether both models
compute the same, and often what is special. Then comes the text of the models, line by line: what
both have, and behind ``-`` and ``+`` what only the original or the candidate has. A weight with
fewer numbers than elements is drawn: floats with that standard deviation, whole numbers from its
negative to it. A comma may stand behind the last weight.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

import numpy as np
import onnx
import onnx.parser
import pytest

from dplcli.errors import VerificationError
from dplcli.verify.equivalence import verify_equivalence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onnx import ModelProto, TensorProto

    from tests.verify.conftest import Save

    Weights = Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]

HEADER = '<ir_version: 9, opset_import: ["" : 18]>'
EPSILON = 1e-5


@dataclass(frozen=True)
class Verdict:
    """Two models, and what is to be said of them.

    Attributes:
        name: What the pair is called.
        is_same: Whether both compute the same.
        is_missed: Whether the check is known to miss that they do not.
        lines: Their texts.
    """

    name: str
    is_same: bool
    is_missed: bool
    lines: tuple[str, ...]

    def models(self) -> tuple[ModelProto, ModelProto]:
        """Return the original and the candidate."""
        ours, theirs = (
            parsed([line[1:] for line in self.lines if line[0] in marks]) for marks in (" -", " +")
        )
        if self.name in RELATED:
            weights = {**stored(theirs), **stored(ours)}
            for name, values in RELATED[self.name](weights).items():
                (tensor,) = (each for each in theirs.graph.initializer if each.name == name)
                tensor.CopyFrom(onnx.numpy_helper.from_array(values, name))
        return ours, theirs


def stored(model: ModelProto) -> Weights:
    """Return the weights of a model."""
    return {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}


def parsed(lines: list[str]) -> ModelProto:
    """Return a model from its text, with its weights drawn."""
    head = "" if lines[0].startswith("<") else HEADER
    text = re.sub(r",\s*>", ">", "\n".join([head, *lines]))
    graph = text.index("(", text.index("]>"))
    model = onnx.parser.parse_model(f"{text[:graph]}g {text[graph:]}")
    for tensor in model.graph.initializer:
        draw(tensor)
    return model


def draw(tensor: TensorProto) -> None:
    """Draw a weight that has fewer numbers than elements: one name and shape, one weight."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    given = [*tensor.float_data, *tensor.int32_data, *tensor.int64_data, *tensor.double_data]
    shape = tuple(tensor.dims)
    if len(given) >= np.prod(shape, dtype=int) or not given:
        return
    rng = np.random.default_rng([crc32(tensor.name.encode()), *shape])
    if dtype.kind == "f":
        if dtype == np.float16:
            given = [float(np.array(given, np.uint16).view(np.float16)[0])]
        values = rng.standard_normal(shape) * given[0]
    else:
        values = rng.integers(0 if dtype.kind == "u" else -given[0], given[0] + 1, shape)
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.asarray(values, dtype), tensor.name))


# Weights of a candidate that follow from those of its original.


def normalised(weights: Weights) -> Weights:
    """Return the weight of a convolution with the normalisation behind it folded in."""
    scale = weights["g"] / np.sqrt(weights["va"] + np.float32(EPSILON))
    return {"K2": weights["K"] * scale[:, None, None, None]}


Place: TypeAlias = "int | slice | tuple[int | slice, ...]"


def changed(name: str, place: Place, by: float = 1) -> Callable[[Weights], Weights]:
    """Return what changes some elements of a weight."""

    def change(weights: Weights) -> Weights:
        values = weights[name].copy()
        values[place] += values.dtype.type(by)
        return {name: values}

    return change


RELATED: Mapping[str, Callable[[Weights], Weights]] = {
    "bigids": changed("E", np.s_[900:]),
    "qw-one-step": changed("Q", np.s_[63:, 31:]),
    "conv-bn": normalised,
    "conv1x1-matmul": lambda weights: {"W": weights["K"][:, :, 0, 0].T.copy()},
    "group-split": lambda weights: {"K1": weights["K"][:3], "K2": weights["K"][3:]},
    "dead-row": changed("V", np.s_[3, 4]),
    "position-row": changed("P", np.s_[40]),
    "masked-weight": changed("V", np.s_[9, 9], 3),
    "long-table-one-row": changed("Q", np.s_[4_321], 9),
    "dq-folded": lambda weights: {"W": weights["Q"].astype(np.float32) * weights["s"]},
    "long-table-scaled": lambda weights: {"T2": weights["T"] * np.float32(0.5)},
}


def pairs() -> Iterator[Verdict]:
    """Yield the pairs of the file."""
    text = (Path(__file__).parent / "verdicts.txt").read_text(encoding="utf-8")
    for block in text.removeprefix("== ").split("\n== "):
        title, *lines = block.splitlines()
        name, said = title.split(": ", 1)
        word = said.partition(";")[0]
        yield Verdict(name, word == "same", word == "missed", tuple(lines))


_QUICK = 18
"""So many pairs, the first ones, are asked for in the quick part."""


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(
            pair,
            id=pair.name,
            marks=[pytest.mark.long] * (number >= _QUICK)
            + [pytest.mark.xfail(reason="missed", strict=True)] * pair.is_missed,
        )
        for number, pair in enumerate(pairs())
    ],
)
def test_verdict(save: Save, pair: Verdict) -> None:
    """Another model is never called equivalent, and another way to the same always is."""
    paths = [save(model, name) for name, model in zip("ab", pair.models(), strict=True)]

    try:
        found = verify_equivalence(paths[0], paths[1], prove=True)
    except VerificationError as error:
        if "locale" in error.message:
            pytest.skip("onnxruntime needs a locale that is not there")
        raise

    if pair.is_same:
        assert (found.verdict, found.doubts, found.objections) == ("equivalent", (), ())
    else:
        assert found.verdict in {"different", "inconclusive"}
        is_off = any(not output.ok for output in found.outputs)
        assert is_off or found.objections or found.doubts
