"""Rules with a Python function: what it may answer, and what becomes of nonsense."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx.checker
import pytest

from dplcli.errors import DplError, PassError
from dplcli.ir import ArrayTensor, Attribute
from dplcli.language import RewriteRule, is_const, is_op, wildcard
from dplcli.language.replacement import DraftOutput, GraphBuilder
from dplcli.passes.rewrite import rewrite
from tests.passes.rewriting import Watched, bound, check_settled, rewrite_rule, rewritten
from tests.support.helpers import check_sound, model_from_text, print_model, proto_from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dplcli.language import Match, Rejection
    from dplcli.language.pattern import DFPattern
    from dplcli.language.replacement import NewValue, Operand, RewriteFunction

    Function = Callable[[Match, GraphBuilder], Any]

TWO = "g (float[2] x) => (float[2] y) { a = Neg (x) y = Exp (a) }"


def attempt(function: Function, before: str = TWO, pattern: str = "Neg(x)") -> PassError:
    """Rewrite with a function that fails; check that nothing has been changed."""
    model = model_from_text(before)
    with pytest.raises(PassError) as caught:
        rewrite(model, [rewrite_rule(pattern, function)], Watched(model))
    assert print_model(model) == print_model(model_from_text(before))
    return caught.value


# -- answers ---------------------------------------------------------------------------------------


def test_none_leaves_the_match() -> None:
    """No application, no reason, nothing changed."""
    result = rewritten(TWO, [rewrite_rule("Neg(x)", lambda _match, _build: None)])
    assert not result.done.applications
    assert not result.done.refused


def test_a_reason_is_told() -> None:
    """``match.reject`` with a reason, and where."""

    def refuse(match: Match, build: GraphBuilder) -> Rejection:
        assert build.match is match
        return match.reject("not today", at=bound(match, "x"))

    (refused,) = rewritten(TWO, [rewrite_rule("Neg(x)", refuse, name="no")]).done.refused
    assert (refused.rule.name, refused.stage, refused.reason) == ("no", "check", "not today")
    assert refused.root.label == "a"
    assert refused.at is refused.root.inputs[0]


def test_another_match_at_the_same_root_after_a_refusal() -> None:
    """The function declines the first way to match, and takes the second."""

    def second(match: Match, build: GraphBuilder) -> NewValue | Rejection:
        if bound(match, "p").name == "x":
            return match.reject("x comes first")
        return build.op("Sub", bound(match, "q"), bound(match, "p"))

    result = rewritten(
        "g (float[2] x, float[2] z) => (float[2] y) { y = Add (x, z) }",
        [rewrite_rule("Add(p, q)", second)],
    )
    assert result.text == "(x, z) => (y) { y = Sub (x, z) }"
    assert not result.done.refused


@pytest.mark.parametrize("wrap", [list, tuple])
def test_several_values(wrap: type) -> None:
    """A list or a tuple, one value for each output."""

    def both(match: Match, build: GraphBuilder) -> Any:  # noqa: ANN401  # a list or a tuple
        x = bound(match, "x")
        parts = build.ops("Split", build.op("Concat", x, x, axis=0), outputs=2, axis=0)
        return wrap(parts)

    before = """g (float[2] x) => (float[2] y) { a = Relu (x) b = Sin (x) y = Add (a, b) }"""
    result = rewritten(before, [rewrite_rule("Relu(x), Sin(x)", both)])
    assert "a, b = Split <axis = 0> (a_Concat)" in result.text
    onnx.checker.check_model(result.after, full_check=True)


def test_what_is_described_in_vain_is_not_made() -> None:
    """Nodes and constants that no output needs leave no trace, nor their domains."""

    def hesitant(match: Match, build: GraphBuilder) -> NewValue:
        x = bound(match, "x")
        build.op("F", build.constant(np.ones(3)), domain="never.made")
        first = build.op("Exp", x)
        build.op("Sin", first)
        return build.op("Cos", first)

    result = rewritten(TWO, [rewrite_rule("Neg(x)", hesitant)])
    assert result.text == "(x) => (y) { a_Exp = Exp (x) a = Cos (a_Exp) y = Exp (a) }"
    assert "never.made" not in result.model.opset_imports


def test_attributes_of_every_kind() -> None:
    """Python's and numpy's numbers, lists, texts, arrays and attributes as they are."""
    given = {
        "i": 3,
        "f": 0.5,
        "s": "word",
        "truth": True,
        "ni": np.int64(4),
        "nf": np.float32(0.25),
        "ints": [1, np.int32(2)],
        "floats": (1.5, 2),
        "strings": ["a", "b"],
        "array": np.array([1, 2]),
        "zero": np.array(7),
        "as_is": Attribute("ints", (8, 9)),
        "left_out": None,
        "tensor": ArrayTensor(np.array([1.0], np.float32)),
    }

    def make(match: Match, build: GraphBuilder) -> NewValue:
        return build.op("F", bound(match, "x"), domain="own", **given)

    result = rewritten(TWO, [rewrite_rule("Neg(x)", make)])
    node = result.after.graph.node[0]
    found = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    tensor = found.pop("tensor")
    assert onnx.numpy_helper.to_array(tensor).tolist() == [1.0]
    assert found == {
        "i": 3,
        "f": 0.5,
        "s": b"word",
        "truth": 1,
        "ni": 4,
        "nf": 0.25,
        "ints": [1, 2],
        "floats": [1.5, 2.0],
        "strings": [b"a", b"b"],
        "array": [1, 2],
        "zero": 7,
        "as_is": [8, 9],
    }


def test_an_array_where_the_operator_wants_a_tensor() -> None:
    """``value=`` of ConstantOfShape is a tensor, not a list of numbers."""

    def fill(match: Match, build: GraphBuilder) -> NewValue:
        shape = build.constant(np.array([2], np.int64))
        filled = build.op("ConstantOfShape", shape, value=np.array([3.0], np.float32))
        return build.op("Add", bound(match, "x"), filled)

    result = rewritten(TWO, [rewrite_rule("Neg(x)", fill)])
    onnx.checker.check_model(result.after, full_check=True)


def test_a_class_has_a_memory_of_one_run() -> None:
    """Every run makes an object of its own."""

    class First:
        def __init__(self) -> None:
            self.seen: set[str] = set()

        def __call__(self, match: Match, build: GraphBuilder) -> NewValue | None:
            if self.seen - {match.root.label}:
                return None
            self.seen.add(match.root.label)
            return build.op("Abs", bound(match, "x"))

    before = "g (float[2] x) => (float[2] y) { a = Neg (x) b = Exp (a) y = Neg (b) }"
    rule = rewrite_rule("Neg(x)", cast("RewriteFunction", First))
    for _ in range(2):
        result = rewritten(before, [rule])
        assert result.text == "(x) => (y) { a = Neg (x) b = Exp (a) y = Abs (b) }"


def test_data_that_a_function_computes() -> None:
    """``build.evaluate`` computes what has constant inputs, and nothing else."""

    def fold(match: Match, build: GraphBuilder) -> NewValue | None:
        found = build.evaluate(match.root)
        return None if found is None else build.constant(found[0])

    before = """g (float[2] x) => (float[2] y) <float[2] k = {1, 2}> {
        a = Neg (k) b = Exp (a) c = Neg (x) d = Add (b, c) y = Mul (d, k) }"""
    rule = rewrite_rule("(Neg | Exp)(_)", fold)
    result = rewritten(before, [rule])
    assert [node.op_type for node in result.after.graph.node] == ["Neg", "Add", "Mul"]
    check_sound(result.before, result.after)
    check_settled(result, [rule])


def test_captured_data_cannot_be_changed_in_place() -> None:
    """Whoever computes with the arrays of a model's constants gets a copy, or an error."""
    arrays = []

    def scribble(match: Match, build: GraphBuilder) -> NewValue:
        tensor = bound(match, "k").constant
        assert tensor is not None
        array = tensor.numpy()
        arrays.append(array.copy())
        array *= 2
        return build.op("Sub", bound(match, "x"), bound(match, "k"))

    double = rewrite_rule("Mul(x, const(k))", "Add(x, const(k.value * 1.0))")
    before = "g (float[2] x) => (float[2] y) <float[2] k = {1, 2}> { y = Mul (x, k) }"
    model = model_from_text(before)
    with pytest.raises(PassError, match="ValueError"):
        rewrite(model, [double, rewrite_rule("Add(x, const(k))", scribble, name="scribble")])
    value = next(item for item in model.graph.initializers)
    assert value.constant is not None
    assert value.constant.numpy().tolist() == arrays[0].tolist() == [1, 2]


# -- failures --------------------------------------------------------------------------------------


def _raise(error: BaseException) -> Function:
    def fail(_match: Match, _build: GraphBuilder) -> None:
        raise error

    return fail


FAILURES = {
    "value-error": (ValueError("no such thing"), "ValueError: no such thing"),
    "several-lines": (KeyError("a\n  b"), "KeyError"),
    "exit": (SystemExit(3), "SystemExit: 3"),
    "recursion": (RecursionError("deep"), "RecursionError: deep"),
    "memory": (MemoryError(), "MemoryError"),
    "assertion": (AssertionError("wrong"), "AssertionError: wrong"),
}


@pytest.mark.parametrize(("error", "words"), FAILURES.values(), ids=FAILURES)
def test_a_function_that_raises(error: BaseException, words: str) -> None:
    """The rule, the node and the reason are named, in one line."""
    message = attempt(_raise(error)).message
    assert message.startswith("the function of the rule 'r' failed at Neg 'a' with ")
    assert words in message
    assert "\n" not in message


def test_an_interrupt_is_no_failure_of_the_function() -> None:
    """Control-C goes through."""
    with pytest.raises(KeyboardInterrupt):
        rewrite(model_from_text(TWO), [rewrite_rule("Neg(x)", _raise(KeyboardInterrupt()))])


def test_an_error_of_dpl_is_passed_on() -> None:
    """It says what is wrong by itself."""
    with pytest.raises(DplError, match="mine"):
        rewrite(model_from_text(TWO), [rewrite_rule("Neg(x)", _raise(DplError("mine")))])


def _generator(match: Match, build: GraphBuilder) -> Iterator[NewValue]:
    yield build.op("Abs", bound(match, "x"))


NONSENSE: dict[str, Function] = {
    "number": lambda _match, _build: 3,
    "text": lambda _match, _build: "x",
    "truth": lambda _match, _build: True,
    "node": lambda match, _build: match.root,
    "match": lambda match, _build: match,
    "builder": lambda _match, build: build,
    "array": lambda _match, _build: np.ones(2, np.float32),
    "nothing-in-a-list": lambda _match, _build: [],
    "too-many": lambda match, _build: [bound(match, "x")] * 2,
    "none-in-a-list": lambda _match, _build: [None],
    "nested": lambda match, _build: [[bound(match, "x")]],
    "generator": _generator,
    "no-such-output": lambda match, build: DraftOutput(
        build.node("Abs", "", [bound(match, "x")], {}), 1
    ),
    "negative-output": lambda match, build: DraftOutput(
        build.node("Abs", "", [bound(match, "x")], {}), -1
    ),
    "another-builder": lambda match, _build: GraphBuilder(match).op("Abs", bound(match, "x")),
    "another-constant": lambda match, _build: GraphBuilder(match).constant(np.ones(2)),
}


@pytest.mark.parametrize("function", NONSENSE.values(), ids=NONSENSE)
def test_an_answer_that_is_none(function: Function) -> None:
    """The answer is shown, and what to return instead; nothing has been changed."""
    error = attempt(function)
    assert error.message.startswith("the function of the rule 'r' answered ")
    assert error.hint == "return 1 value(s), None, or match.reject(reason)"


def _reads(item: Function) -> Function:
    """Make a function that gives an operator an input that is none."""
    return lambda match, build: build.op("Abs", item(match, build))


OPERANDS: dict[str, Function] = {
    "name": _reads(lambda _match, _build: "x"),
    "array": _reads(lambda _match, _build: np.ones(2)),
    "node": _reads(lambda match, _build: match.root),
    "tuple": _reads(lambda match, build: build.ops("Split", bound(match, "x"), outputs=2)),
    "another-builder": _reads(lambda match, _build: GraphBuilder(match).constant(np.ones(1))),
    "object-array": lambda _match, build: build.constant(np.array([object()])),
}


@pytest.mark.parametrize("function", OPERANDS.values(), ids=OPERANDS)
def test_an_input_that_is_none(function: Function) -> None:
    """A type error, at the rule that makes it; nothing is half made."""
    assert "failed at Neg 'a' with TypeError: " in attempt(function).message


def test_a_value_of_an_earlier_match() -> None:
    """What was described for one match means nothing in another."""
    kept: list[NewValue] = []

    def hoard(match: Match, build: GraphBuilder) -> NewValue:
        kept.append(build.op("Abs", bound(match, "x")))
        return kept[0]

    model = model_from_text("g (float[2] x) => (float[2] y) { a = Neg (x) y = Neg (a) }")
    with pytest.raises(PassError, match="answered <output 0 of a new Abs> at Neg 'a'"):
        rewrite(model, [rewrite_rule("Neg(x)", hoard)], Watched(model))
    assert print_model(model) == "(x) => (y) {\n  a = Neg (x)\n  y = Abs (a)\n}"


def _attribute(value: object) -> Function:
    """Make a function that gives a foreign operator an attribute."""
    return lambda _match, build: build.op("F", domain="own", k=value)


UNFIT: dict[str, tuple[Function, str]] = {
    "no-such-operator": (lambda _m, build: build.op("Abbs", _m.outputs[0]), "no Abbs"),
    "newer-operator": (lambda m, build: build.op("Gelu", bound(m, "x")), "opset 17 has no Gelu"),
    "too-many-inputs": (lambda m, build: build.op("Abs", *m.outputs * 2), "takes no 2 inputs"),
    "no-such-attribute": (lambda m, build: build.op("Abs", bound(m, "x"), k=1), "no 'k'"),
    "missing-attribute": (lambda m, build: build.op("Cast", bound(m, "x")), "needs 'to'"),
    "kind": (lambda m, build: build.op("Elu", bound(m, "x"), alpha="a"), "alpha is float"),
    "large": (_attribute(1 << 63), "'k' cannot be 92"),
    "no-utf8": (_attribute("\ud800"), "'k' cannot be"),
    "object": (_attribute(object()), "'k' cannot be"),
    "mixed": (_attribute([1, "a"]), "'k' cannot be"),
    "nested": (_attribute([[1], [2]]), "'k' cannot be"),
    "no-outputs": (lambda m, build: build.ops("Abs", bound(m, "x"), outputs=0), "no 0 outputs"),
    "two-outputs": (lambda m, build: build.ops("Abs", bound(m, "x"), outputs=2), "no 2 outputs"),
    "own-output": (lambda m, build: build.op("Abs", m.outputs[0]), "'a', which it replaces"),
    "much-later": (
        lambda m, build: build.op("Abs", m.root.graph.values["y"]),
        "'y', which is not made before it",
    ),
    "later-itself": (lambda m, _build: m.root.graph.values["y"], "'y', which is not made before"),
    "gone": (lambda m, build: build.op("Abs", _gone(m)), "which is not made before it"),
    "another-model": (
        lambda _m, build: build.op("Abs", model_from_text(TWO).graph.values["x"]),
        "which is not made before it",
    ),
}


def _gone(match: Match) -> Operand:
    value = model_from_text(TWO).graph.values["a"]
    value.graph = match.root.graph
    return value


@pytest.mark.parametrize(("function", "words"), UNFIT.values(), ids=UNFIT)
def test_what_does_not_fit_is_refused(function: Function, words: str) -> None:
    """The match stays as it is, and the reason is told."""
    result = rewritten(TWO, [rewrite_rule("Neg(x)", function)])
    assert not result.done.applications
    (refused,) = result.done.refused
    assert words in refused.reason


def test_a_value_that_needs_what_is_replaced() -> None:
    """It lies before the last node of the match, but is going to be moved behind it."""

    def circular(match: Match, build: GraphBuilder) -> list[Operand]:
        late = match.root.graph.values["w"]
        return [build.op("Abs", late), build.op("Exp", bound(match, "x"))]

    before = """g (float[2] x) => (float[2] w, float[2] v)
        { a = Neg (x) w = Exp (a) b = Sin (x) v = Add (b, x) }"""
    result = rewritten(before, [rewrite_rule("Neg(x), Sin(x)", circular)])
    assert not result.done.applications
    (refused,) = result.done.refused
    assert refused.reason == "the replacement reads 'w', which needs what it replaces"


def test_a_value_from_round_a_body() -> None:
    """A value of an outer graph may be read in a body if it is made before the body's node."""

    def outer(name: str) -> Function:
        return lambda match, build: build.op(
            "Add", bound(match, "x"), match.root.graph.model.graph.values[name]
        )

    before = """g (float[2] x, bool c) => (float[2] y) { early = Sin (x)
        i = If (c) <then_branch = t () => (float[2] p) { p = Neg (x) },
                    else_branch = e () => (float[2] q) { q = Exp (x) }>
        late = Cos (x) s = Add (i, late) y = Add (s, early) }"""
    result = rewritten(before, [rewrite_rule("Neg(x)", outer("early"))])
    assert "p = Add (x, early)" in result.text
    onnx.checker.check_model(result.after, full_check=True)
    for name in ("late", "i", "y"):
        result = rewritten(before, [rewrite_rule("Neg(x)", outer(name))])
        assert not result.done.applications
        assert f"{name!r}, which is not made before it" in result.done.refused[0].reason


def test_the_text_of_a_refused_rule_shows_no_addresses() -> None:
    """Messages are the same in every run."""
    first, second = (attempt(NONSENSE["too-many"]).message for _ in range(2))
    shown = attempt(NONSENSE["another-builder"]).message
    assert shown == attempt(NONSENSE["another-builder"]).message
    assert first == second


def test_every_pattern_object_can_be_asked_for() -> None:
    """Named or not, used once or twice, with a type or without; what took no part is None."""
    plain, typed, twice = wildcard(), wildcard().has_rank(1), wildcard()
    constant, left, right = is_const(), wildcard(), wildcard()
    inner = is_op("Mul")(plain, typed)
    choice = is_op("Neg")(left) | is_op("Abs")(right)
    pattern = is_op("Sum")(inner, choice, twice, twice, constant)
    found: list[list[str | None]] = []

    def ask(match: Match, build: GraphBuilder) -> None:
        assert build.match is match
        parts: list[DFPattern] = [plain, typed, inner, left, right, choice, twice, constant]
        values = [match.value(part) for part in parts]
        found.append([None if value is None else value.name for value in values])

    before = """g (float[2] a, float[2] b, float[2] c, float[2] d) => (float[2] y)
        <float[2] k = {1, 2}> {
        i = Identity (a) m = Mul (i, b) n = Abs (c) y = Sum (m, n, d, d, k) }"""
    rewritten(before, [RewriteRule("ask", pattern, ask)])
    expected = ["a", "b", "m", None, "c", "n", "d", "k"]
    assert expected in found
    assert all(item[2:] == expected[2:] for item in found)


# -- constants that several places read ------------------------------------------------------------


def test_shared_constants_are_stored_once() -> None:
    """Equal ones of one graph are one, but for another shape, type or graph; others are not."""

    def shifted(match: Match, build: GraphBuilder) -> Operand | None:
        by = {"a": [[1.0]], "b": [[1.0]], "c": [[2.0]], "d": [1.0], "e": [[1.0]]}
        data = by.get(match.outputs[0].name)
        if data is None:
            return None
        shift = build.constant(np.array(data, np.float32), is_shared=True)
        return build.op("Add", match.root.inputs[0], shift)

    text = """g (float[1, 1] x, bool q) => (float[1, 1] y) {
        a = Neg (x)  b = Neg (a)  c = Neg (b)  d = Neg (c)
        y = If (q) <
            then_branch = t () => (float[1, 1] u) { e = Neg (d)  u = Exp (e) },
            else_branch = f () => (float[1, 1] v) { v = Exp (d) } >
    }"""
    result = rewritten(text, [rewrite_rule("Neg(x)", shifted)])
    assert result.done.counts == {"r": 5}
    stored = {item.name: list(item.dims) for item in result.after.graph.initializer}
    first, again, other, flat = (
        node.input[1] for node in result.after.graph.node if node.op_type == "Add"
    )
    assert first == again
    assert stored == {first: [1, 1], other: [1, 1], flat: [1]}
    (body,) = (a.g for a in result.after.graph.node[-1].attribute if a.name == "then_branch")
    assert len(body.initializer) == 1


def test_constants_are_not_shared_unless_asked() -> None:
    """A weight that a rule makes belongs to one place, and may be changed there."""
    rule = rewrite_rule(
        "Neg(x)", lambda match, build: build.op("Add", match.root.inputs[0], build.constant(ONE))
    )
    result = rewritten("g (float[1] x) => (float[1] y) { a = Neg (x)  y = Neg (a) }", [rule])
    assert len(result.after.graph.initializer) == 2


ONE = np.ones(1, np.float32)


# -- what new nodes say ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "replacement", "replaces"),
    [
        pytest.param("Exp(Neg(x))", "Exp(x)", None, id="its-own-name"),
        pytest.param("Exp(Neg(x))", "Neg(x)", "n_y", id="the-name-of-another"),
        pytest.param("Exp(Neg(x))", "Abs(x)", "n_y", id="a-new-name"),
        pytest.param("Neg(x)", "Abs(Neg(x))", None, id="both-new"),
    ],
)
def test_new_nodes_name_whose_results_they_make(
    pattern: str, replacement: str, replaces: str | None
) -> None:
    """The rule, and who made the results before, if the name does not say so."""
    proto = proto_from_text("g (float[2] x) => (float[2] y) { a = Neg (x)  y = Exp (a) }")
    proto.graph.node[0].name, proto.graph.node[1].name = "n_a", "n_y"
    result = rewritten(proto, [rewrite_rule(pattern, replacement)], limit=1)
    said = [{item.key: item.value for item in n.metadata_props} for n in result.after.graph.node]
    wanted = {"dpl.rule": "r"} | ({"dpl.replaces": replaces} if replaces else {})
    assert [entry for entry in said if entry] == [wanted] * (2 if "Abs(Neg" in replacement else 1)
