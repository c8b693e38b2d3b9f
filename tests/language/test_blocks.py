"""Constants that are computed a block at a time: the numbers are those of the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.ir import types
from dplcli.ir.types import ArrayTensor
from dplcli.language import blocks
from dplcli.language.blocks import LazyArray, combined, data_of
from dplcli.language.conditions import Expression
from tests.support.helpers import model_from_text

if TYPE_CHECKING:
    from typing import Any

    from dplcli.ir import Value

TEXT = """g (float[1] x) => (float[1] y) <
    float[6, 7] w = {%s}, float[7] s = {1, 2, 3, 4, 5, 6, 7}, float[6] c = {6, 5, 4, 3, 2, 1},
    float[1] h = {0.5}, double[6, 7] d = {%s}, int64[6, 7] i = {%s}, float[6, 7] z = {%s}>
    { y = Identity (x) }"""

EXPRESSIONS = [
    "cast(double(w.value) * along(double(s.value), 1, 2) / along(double(h.value), 1, 2), w.dtype)",
    "cast(double(w.value) * along(double(c.value), 0, w.rank), w.dtype)",
    "cast(reshape(reshape(w.value, [2, 3, 7]) * reshape(c.value, [2, 3, 1]), [6, 7]), w.dtype)",
    "cast(reshape(double(w.value), [-1, 2, 7]) - s.value, 'float16')",
    "w.value * 2 + 1",
    "0.1 * -w.value",
    "w.value * h.value - w.value",
    "abs(w.value - 20) ** 2",
    "w.value * i.value",
    "i.value // 4 + i.value % 3",
    "round(w.value / 3)",
    "sqrt(w.value)",
    "w.value[2:4]",
    "transpose(w.value)",
    "concat([w.value, w.value * 2], 1)",
    "sum(w.value)",
    "sum(w.value, 0)",
    "max(w.value) - min(w.value)",
    "all(w.value >= 0)",
    "any(w.value == 41)",
    "any(w.value == 42)",
    "all(d.value * 2 != w.value)",
    "all(-1 < w.value) and is_finite(w.value)",
    "is_finite(w.value / z.value)",
    "len(w.value)",
    "is_close(z, 0)",
    "is_close(w, 0)",
    "list(w.value[0])",
    "cast(i.value, 'uint8')",
    "cast(w.value - 1, 'uint8')",
    "cast(d.value * 1e40, 'float32')",
    "cast(d.value, 'no type')",
    "w.value + reshape(s.value, [7, 1])",
    "1 if w.value else 2",
    "reshape(w.value, [5, 5])",
]


@pytest.fixture
def bindings() -> dict[str, Value]:
    """Return constants by name."""
    whole = ", ".join(map(str, range(42)))
    model = model_from_text(TEXT % (whole, whole, whole, ", ".join("0" * 42)))
    return dict(model.graph.values)


def answer(text: str, bindings: dict[str, Value]) -> tuple[Any, ...]:
    """Return what comes of an expression: type, shape and bits, or what is said instead."""
    try:
        found: Any = Expression(text).value(bindings)
    except ValueError as error:
        return (type(error), str(error))
    assert not isinstance(found, LazyArray)
    return (type(found), np.asarray(found).dtype, np.shape(found), np.asarray(found).tobytes())


@pytest.mark.parametrize("chunk", [1, 2, 5, 16, 41])
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_blocks_give_what_the_whole_gives(
    monkeypatch: pytest.MonkeyPatch, bindings: dict[str, Value], text: str, chunk: int
) -> None:
    """Element type, shape and every bit; what cannot be computed is said in the same words."""
    wanted = answer(text, bindings)
    for module in (types, blocks):
        monkeypatch.setattr(module, "CHUNK", chunk)
    assert isinstance(data_of(ArrayTensor(np.zeros((6, 7)))), LazyArray)

    assert answer(text, bindings) == wanted


def test_an_expression_has_nothing_but_its_result_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, bindings: dict[str, Value]
) -> None:
    """What is scaled is read block by block, in order, each once."""
    for module in (types, blocks):
        monkeypatch.setattr(module, "CHUNK", 10)
    spans: list[tuple[int, int]] = []
    reader = types.Tensor.reader

    def noted(tensor: types.Tensor) -> Any:  # noqa: ANN401  # what reads
        read = reader(tensor)

        def part(begin: int, end: int) -> Any:  # noqa: ANN401  # an array
            spans.append((begin, end))
            return read(begin, end)

        return part

    monkeypatch.setattr(types.Tensor, "reader", noted)
    monkeypatch.setattr(LazyArray, "__array__", None)

    answer(EXPRESSIONS[0], bindings)

    assert spans == [(0, 10), (10, 20), (20, 30), (30, 40), (40, 42)]


@given(
    dims=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    kept=st.lists(st.booleans(), min_size=4, max_size=4),
    begin=st.integers(0, 255),
    size=st.integers(1, 256),
)
def test_an_operand_is_spread_as_numpy_does_it(
    dims: tuple[int, ...], kept: list[bool], begin: int, size: int
) -> None:
    """Of any part of any shape, whatever dimensions of the operand are 1."""
    large = np.arange(np.prod(dims), dtype=np.int64).reshape(dims)
    small = large[tuple(slice(None if keep else 1) for keep, _ in zip(kept, dims, strict=False))]
    begin %= large.size
    end = min(begin + size, large.size)
    source = LazyArray(dims, lambda first, last: large.reshape(-1)[first:last])

    made = combined(np.add, source, small)

    np.testing.assert_array_equal(made.read(begin, end), (large + small).reshape(-1)[begin:end])
