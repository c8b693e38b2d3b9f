"""Which value of one model is which of the other, where layers are alike and some changed."""

from pathlib import Path

import onnx.parser
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dplcli.analysis.pairing import corresponding_values
from dplcli.ir import Model
from dplcli.onnx_io import model_from_proto

STEPS = ("Neg ({})", "Sqrt ({})", "CastLike (one, {})", "Mul ({}, one)", "Add ({}, {})")


def layers(count: int, steps: tuple[list[str], list[str], list[str]], fused: set[int]) -> Model:
    """Build a model of layers of three parts; in fused layers one node is the first and third."""
    lines, value = [], "x"
    for layer in range(count):
        for part, (letter, some) in enumerate(zip("abc", steps, strict=True)):
            made = [f"{letter}{layer}_{number}" for number in range(len(some))]
            if layer in fused and part != 1:
                lines.append(f"{made[-1]} = Sub (one, {value})")
                value = made[-1]
                continue
            for name, step in zip(made, some, strict=True):
                lines.append(f"{name} = {step.replace('{}', value)}")
                value = name
        lines.append(f"y{layer} = Add ({value}, w{layer})")
        value = f"y{layer}"
    weights = ", ".join(f"float w{layer} = {{{layer + 2}}}" for layer in range(count))
    text = f"g (float[4] x) => (float[4] {value}) <float one = {{1}}, {weights}> "
    header = '<ir_version: 9, opset_import: ["" : 17]>\n'
    body = "\n".join(lines)
    return model_from_proto(onnx.parser.parse_model(f"{header}{text}{{ {body} }}"), Path(), "m")


def some_steps(most: int) -> st.SearchStrategy[list[str]]:
    """Draw the operators of a part."""
    return st.lists(st.sampled_from(STEPS), min_size=1, max_size=most)


@pytest.mark.long
@given(
    count=st.integers(2, 4),
    steps=st.tuples(some_steps(5), some_steps(4), some_steps(5)),
    fused=st.sets(st.integers(0, 3)),
)
@example(2, ([STEPS[4], STEPS[3]], [STEPS[0]], [STEPS[4], STEPS[3], STEPS[0]]), {0})
@example(2, ([STEPS[1], STEPS[0]], [STEPS[0]], [STEPS[1]]), {0, 1})
@example(3, ([STEPS[4], STEPS[1], STEPS[3]], [STEPS[2], STEPS[0]], [STEPS[0]]), {0, 1, 2})
def test_no_node_is_taken_for_one_of_another_name(
    count: int, steps: tuple[list[str], list[str], list[str]], fused: set[int]
) -> None:
    """Values that kept their names are themselves, however alike others are."""
    pairs = corresponding_values(layers(count, steps, set()), layers(count, steps, fused))
    assert [pair for pair in pairs if pair[0] != pair[1]] == []


@pytest.mark.parametrize("prefix", ["", "n"])
def test_names_are_a_hint_alone(prefix: str) -> None:
    """Where all names are others, or those of another layer, what nodes read decides."""
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float[4] x) => (float[4] y)
    { %a = Neg (x) %b = Exp (%a) %c = Abs (%b) %d = Exp (%c) y = Sin (%d) }"""
    renamed = {name: f"{prefix}{other}" for name, other in zip("abcd", "badc", strict=True)}
    other = text
    for name, new in renamed.items():
        other = other.replace(f"%{name}", new)
    models = (
        model_from_proto(onnx.parser.parse_model(each.replace("%", "")), Path(), "m")
        for each in (text, other)
    )
    found = {old: new for old, new, _ in corresponding_values(*models)}
    assert {name: found[name] for name in "abcd"} == renamed
