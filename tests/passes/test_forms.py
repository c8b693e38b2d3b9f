"""A function's name says which form of its rule it has: the same in every model."""

from __future__ import annotations

import operator
from itertools import permutations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.ir.operators import COMMUTATIVE
from dplcli.passes.forms import FormKey, OperatorUse, form_of
from tests.passes.inlining import inlined
from tests.support.helpers import check_outcome, partitioned, proto_from_text, rule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from dplcli.language import PatternRule

HEAD = "g (float[1,2,4,4] a, float[1,2,4,4] b) => (float[1,2,4,4] o)"
WEIGHTS = "<float[2,2,1,1] w = {1, 2, 3, 4}, float[2,1,1] k = {1, 2}>"
RULE = rule("Relu(optional(Add)(Conv(x, w), r))", name="conv", constants="lift")


def bodies(rules: PatternRule | Sequence[PatternRule], text: str) -> dict[str, tuple[object, ...]]:
    """Return what a kernel's author relies on, by the names of the functions."""
    result = onnx.ModelProto.FromString(partitioned(rules, text)[2])
    return {
        function.name: (
            list(function.input),
            list(function.output),
            [(node.op_type, list(node.input)) for node in function.node],
        )
        for function in result.functions
    }


@pytest.mark.parametrize("constants", ["lift", "auto"])
def test_two_models_agree_on_names_whichever_form_comes_first(constants: str) -> None:
    """One model has the plain form first, the other the one with an addition."""
    chosen = rule("Relu(optional(Add)(Conv(x, w), r))", name="conv", constants=constants)
    plain = "c{0} = Conv ({1}, w) {2} = Relu (c{0})"
    added = "d{0} = Conv ({1}, w) e{0} = Add (d{0}, b) {2} = Relu (e{0})"
    one = bodies(
        chosen,
        f"{HEAD} {WEIGHTS} {{ {plain.format(1, 'a', 'm')} {added.format(2, 'm', 'o')} }}",
    )
    other = bodies(
        chosen,
        f"{HEAD} {WEIGHTS} {{ {added.format(1, 'a', 'm')} {plain.format(2, 'm', 'o')} }}",
    )
    assert one == other
    assert len(one) == 2
    assert "conv" in one
    assert one["conv"][2] == [("Conv", ["x", "w"]), ("Relu", ["conv_0_out"])]


def test_the_second_form_alone_does_not_get_the_name_of_the_first() -> None:
    """A kernel for ``conv`` must not be called for what adds something."""
    both = f"""{HEAD} {WEIGHTS} {{
        c = Conv (a, w) m = Relu (c) d = Conv (m, w) e = Add (d, b) o = Relu (e) }}"""
    alone = f"{HEAD} {WEIGHTS} {{ d = Conv (a, w) e = Add (d, b) o = Relu (e) }}"
    assert set(bodies(RULE, alone)) == set(bodies(RULE, both)) - {"conv"}


@pytest.mark.parametrize("order", ["p = Neg (a) q = Abs (b)", "q = Abs (b) p = Neg (a)"])
@pytest.mark.parametrize("operands", ["p, q", "q, p"])
def test_the_order_of_the_file_is_no_part_of_a_form(order: str, operands: str) -> None:
    """Nodes stand as the outputs ask for them, inputs as the pattern names them."""
    chosen = rule("Relu(Add(Neg(x), Abs(y)))", name="n")
    text = f"{HEAD} {{ {order} s = Add ({operands}) o = Relu (s) }}"
    assert bodies(chosen, text) == bodies(
        chosen, f"{HEAD} {{ q = Abs (b) p = Neg (a) s = Add (p, q) o = Relu (s) }}"
    )
    result = check_outcome(chosen, text)
    assert list(result.graph.node[0].input) == ["a", "b"]


def test_inputs_stand_in_the_order_of_the_patterns_names() -> None:
    """Also where the operators read them in another order."""
    chosen = rule("Sub(z, Mul(x, y))", name="m")
    text = (
        "g (float[2] a, float[2] b, float[2] c) => (float[2] o) { m = Mul (b, c) o = Sub (a, m) }"
    )
    result = check_outcome(chosen, text)
    assert list(result.functions[0].input) == ["z", "x", "y"]
    assert list(result.graph.node[0].input) == ["a", "b", "c"]


def test_constants_in_a_body_are_part_of_the_name() -> None:
    """A kernel is not given them, so another number is another function, and equal ones share."""
    chosen = rule("Add(x, const(c))", name="shift", constants="embed")
    head = "g (float[2] a) => (float[2] o)"
    texts = {
        number: f"{head} <float[2] k = {{{number}, 0}}> {{ o = Add (a, k) }}" for number in (1, 2)
    }
    names = {number: next(iter(bodies(chosen, text))) for number, text in texts.items()}
    assert names[1] != names[2]
    assert "shift" not in names.values()
    assert bodies(chosen, texts[1].replace("k", "l")).keys() == {names[1]}


def test_a_number_that_the_pattern_states_is_part_of_the_pattern() -> None:
    """The rule's own name says it."""
    text = "g (float[2] a) => (float[2] o) <float k = {0.5}> { o = Mul (a, k) }"
    assert list(bodies(rule("Mul(x, 0.5)", name="half"), text)) == ["half"]


def test_another_meaning_of_an_operator_is_another_form() -> None:
    """Softmax was something else before opset 13, for the same attribute."""
    found = {}
    for opset in (11, 12, 13, 17):
        text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
            g (float[2,3,4] a) => (float[2,3,4] o) {{ o = Softmax <axis = 1> (a) }}"""
        (found[opset],) = bodies(rule("Softmax(x)", name="s"), text)
    assert found[13] == found[17] == "s"
    assert found[11] == found[12] != "s"


def test_names_of_attributes_do_not_depend_on_which_are_given() -> None:
    """``axis`` of the second operator is ``axis_1`` even if the first does not state its own."""
    chosen = rule("Softmax(Flatten(x))", name="f")
    text = "g (float[2,3] a) => (float[2,3] o) {{ f = Flatten {} (a) o = Softmax <axis = 1> (f) }}"
    for stated in ("", "<axis = 1>"):
        (function,) = onnx.ModelProto.FromString(
            partitioned(chosen, text.format(stated))[2]
        ).functions
        (softmax,) = [node for node in function.node if node.op_type == "Softmax"]
        assert softmax.attribute[0].ref_attr_name == "axis_1"


@st.composite
def wirings(draw: st.DrawFn) -> FormKey:
    """Draw a small graph."""
    inputs = draw(st.integers(1, 3))
    operators, wires = [], []
    for number in range(draw(st.integers(1, 5))):
        op = draw(st.sampled_from(["Add", "Mul", "Sub", "Relu"]))
        choices = [*range(inputs), *((n, 0) for n in range(number))]
        count = 1 if op == "Relu" else 2
        operators.append(OperatorUse("", op, "", 0, (), (True,)))
        wires.append(tuple(draw(st.sampled_from(choices)) for _ in range(count)))
    read = {wire for of in wires for wire in of if isinstance(wire, int)}
    place = {k: at for at, k in enumerate(sorted(read))}
    wires = [tuple(place[w] if isinstance(w, int) else w for w in of) for of in wires]
    names = tuple((at, f"n{at}") for at in range(len(read)))
    return FormKey(tuple(operators), tuple(wires), names, ((len(wires) - 1, 0),))


@given(wirings(), st.randoms(use_true_random=False))
def test_a_form_is_the_same_for_every_order(wiring: FormKey, random: Random) -> None:
    """Nodes in another topological order, operands swapped: the same form; and it computes that."""
    count = len(wiring.operators)
    order: list[int] = []
    while len(order) < count:
        ready = [
            n
            for n in range(count)
            if n not in order
            and all(w[0] in order for w in wiring.wires[n] if isinstance(w, tuple))
        ]
        order.append(random.choice(ready))
    place = {number: at for at, number in enumerate(order)}
    wires = []
    for number in order:
        of = tuple((place[w[0]], 0) if isinstance(w, tuple) else w for w in wiring.wires[number])
        swap = wiring.operators[number].op_type in COMMUTATIVE and random.random() < 0.5
        wires.append(of[::-1] if swap else of)
    operators = tuple(wiring.operators[number] for number in order)
    other = FormKey(operators, tuple(wires), wiring.names, ((place[count - 1], 0),))
    form, again = form_of(wiring), form_of(other)
    values = np.random.default_rng(0).standard_normal(len(wiring.names))
    (mine,), (theirs,) = (
        evaluated(found.wiring, [values[k] for k in found.inputs]) for found in (form, again)
    )
    assert mine == theirs == evaluated(wiring, list(values))[0]
    reached = needed(wiring)
    if len(reached) == count:
        assert form.wiring == again.wiring


@pytest.mark.parametrize(
    "wires",
    [
        # Two Relus of x, told apart by what else reads one of them.
        ((0,), (0,), ((0, 0), (1, 0)), (0, (0, 0)), ((2, 0), (3, 0))),
        # Alike from all sides, but the two Adds have to choose together.
        ((0,), (0,), ((0, 0),), ((1, 0),), ((0, 0), (1, 0)), ((2, 0), (3, 0)), ((4, 0), (5, 0))),
        ((0,), (0,), ((0, 0),), ((1, 0),), ((0, 0), (3, 0)), ((2, 0), (1, 0)), ((4, 0), (5, 0))),
    ],
)
def test_operands_that_look_alike_are_told_apart(wires: tuple[tuple[Any, ...], ...]) -> None:
    """All orders of the nodes and of the operands that mean the same are one form."""
    ops = {1: "Relu", 2: "Add"}
    count = len(wires)
    seen = set()
    for order in permutations(range(count)):
        place = {number: at for at, number in enumerate(order)}
        if any(place[w[0]] > place[n] for n in order for w in wires[n] if isinstance(w, tuple)):
            continue
        for swaps in product((1, -1), repeat=count):
            moved = tuple(
                tuple((place[w[0]], 0) if isinstance(w, tuple) else w for w in wires[n])[
                    :: swaps[n]
                ]
                for n in order
            )
            uses = tuple(OperatorUse("", ops[len(of)], "", 0, (), (True,)) for of in moved)
            key = FormKey(uses, moved, ((0, ""),), ((place[count - 1], 0),))
            seen.add(form_of(key).wiring)
    assert len(seen) == 1


def needed(wiring: FormKey) -> set[int]:
    """Return the nodes that the output needs."""
    found: set[int] = set()
    pending = [wiring.outputs[0][0]]
    while pending:
        number = pending.pop()
        found.add(number)
        pending += [w[0] for w in wiring.wires[number] if isinstance(w, tuple)]
    return found


_COMPUTED: dict[str, Callable[..., float]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Sub": operator.sub,
    "Relu": lambda x: max(x, 0.0),
}


def evaluated(wiring: FormKey, values: list[float]) -> list[float]:
    """Compute a wiring."""
    made: list[float] = []
    for use, wires in zip(wiring.operators, wiring.wires, strict=True):
        read = [made[w[0]] if isinstance(w, tuple) else values[int(str(w))] for w in wires]
        made.append(_COMPUTED[use.op_type](*read))
    return [made[number] for number, _ in wiring.outputs]


OLD = """<ir_version: 8, opset_import: ["" : 17, "t" : 1]>
    g (float[2] a, float[2] b) => (float[2] o) { [r_0] s = t.r (b, a) [r_1_0] o = t.r_1 (s, a) }
    <domain: "t", opset_import: ["" : 17]>
    r (y, x) => (add_2_out) {
        [Neg_0] neg_0_out = Neg (y) [Relu_1] relu_1_out = Relu (x)
        [Add_2] add_2_out = Add (relu_1_out, neg_0_out) }
    <domain: "t", opset_import: ["" : 17]>
    r_1 (x, y) => (add_2_out) {
        [Relu_0] relu_0_out = Relu (x) [Neg_1] neg_1_out = Neg (y)
        [Add_2] add_2_out = Add (neg_1_out, relu_0_out) }"""
"""What a release wrote that numbered the forms of a rule, and knew no swapped operands."""


def test_files_of_earlier_releases_are_inlined() -> None:
    """Their calls say how each node was called, and nothing of operands."""
    proto = proto_from_text(OLD)
    said = {
        "r_0": '[["Neg","",["n"]],["Relu","",["r"]],["Add","",["s"]]]',
        "r_1_0": '[["Relu","",["t"]],["Neg","",["m"]],["Add","",["o"]]]',
    }
    for function in proto.functions:
        function.metadata_props.add(key="Composite", value="t.r")
        function.metadata_props.add(key="Codegen", value="t")
    for node in proto.graph.node:
        node.metadata_props.add(key="dpl.nodes", value=said[node.name])
    result, _ = inlined(proto)
    assert [(node.op_type, *node.input, *node.output) for node in result.graph.node] == [
        ("Neg", "b", "n"),
        ("Relu", "a", "r"),
        ("Add", "r", "n", "s"),
        ("Relu", "s", "t"),
        ("Neg", "a", "m"),
        ("Add", "m", "t", "o"),
    ]
