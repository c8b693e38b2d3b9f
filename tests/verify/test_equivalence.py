"""The verdict: what must be noticed, what must not be, and what is no verdict at all."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

from dplcli.errors import ModelLoadError, UsageError, VerificationError
from dplcli.report.json import parts_of
from dplcli.verify import Check, VerificationResult, equivalence
from dplcli.verify.equivalence import verify_equivalence
from dplcli.verify.run import Runner
from dplcli.verify.values import ModelSource, StoppedError

Save = Callable[..., Path]

NET = """g (float[N, 3] x) => (float[N, 2] y)
<float[3, 2] w = {0.5, -1.25, 2, 0.75, -0.3, 1}, float[2] b = {0.1, 0.2}>
{ t = MatMul (x, w) s = Add (t, b) y = Relu (s) }"""
FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "dpl.dnnl" : 1]>
g (float[2, 3] x) => (float[2, 3] y) { y = dpl.dnnl.leaky <slope = 0.3> (x) }
<domain: "dpl.dnnl", opset_import: ["" : 17]>
leaky <slope> (a) => (c) { c = LeakyRelu <alpha: float = @slope> (a) }"""
PLAIN = "g (float[2, 3] x) => (float[2, 3] y) { y = LeakyRelu <alpha = 0.3> (x) }"


def reasons(result: VerificationResult) -> str:
    """Return everything that speaks against equivalence."""
    return " | ".join([*result.reasons, *(o.reason for o in result.outputs if o.reason)])


def test_model_is_equivalent_to_itself_at_every_level(save: Save) -> None:
    """A model equals itself, bit by bit, without optimisation, and each level is reported."""
    path = save(NET)

    result = verify_equivalence(path, path)

    assert result.equivalent
    assert [(o.name, o.level, o.ok) for o in result.outputs] == [
        ("y", "disable", True),
        ("y", "all", True),
    ]
    assert (result.outputs[0].max_abs, result.outputs[0].max_ulp) == (0, 0)
    assert not result.warnings


def test_other_order_of_the_same_sum_passes(save: Save) -> None:
    """Gemm instead of MatMul and Add rounds differently, which is no difference."""
    gemm = NET.replace("t = MatMul (x, w) s = Add (t, b)", "s = Gemm (x, w, b)")

    assert verify_equivalence(save(NET), save(gemm, "gemm")).equivalent


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(NET.replace("-1.25", "-1.24"), id="weight-0.8-percent-off"),
        pytest.param(NET.replace("0.2}", "0.201}"), id="bias-slightly-off"),
        pytest.param(NET.replace("y = Relu", "y = Abs"), id="other-activation"),
        pytest.param(NET.replace("y = Relu (s)", "y = Relu (t)"), id="bias-dropped"),
    ],
)
def test_small_mistakes_are_noticed(save: Save, mutant: str) -> None:
    """A near miss in a weight or an operator fails at both levels, with a place and a number."""
    result = verify_equivalence(save(NET), save(mutant, "mutant"))

    assert not result.equivalent
    assert [o.ok for o in result.outputs] == [False, False]
    assert "outside the tolerance; at [" in reasons(result)


def test_one_percent_on_one_element_fails_for_float32(save: Save) -> None:
    """A relative error of 1 % in one single element of float32 is not tolerated."""
    scale = "g (float[2, 3] x) => (float[2, 3] y) <float[3] s = {1, 1, %s}> { y = Mul (x, s) }"

    result = verify_equivalence(save(scale % "1"), save(scale % "1.01", "off"))

    assert not result.equivalent
    assert result.outputs[0].max_rel == pytest.approx(0.01, rel=1e-3)


def test_function_call_equals_its_inlined_body(save: Save) -> None:
    """A partition as a local function with a declared attribute computes what the node did."""
    assert verify_equivalence(save(PLAIN), save(FUNCTION, "function")).equivalent


def test_wrong_attribute_inside_a_function_is_noticed(save: Save) -> None:
    """A function that ignores the attribute of its call differs."""
    wrong = FUNCTION.replace("alpha: float = @slope", "alpha = 0.31")

    assert not verify_equivalence(save(PLAIN), save(wrong, "wrong")).equivalent


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        pytest.param(NET.replace(" x)", " z)").replace("(x,", "(z,"), "no input 'x'", id="input"),
        pytest.param(NET.replace("y)\n", "z)\n").replace("y =", "z ="), "no output 'y'", id="out"),
        pytest.param(NET.replace("[N, 2] y", "[N, 2, 1] y"), "rank 3, not 2", id="rank"),
        pytest.param(
            NET.replace("float[N, 2] y", "int64[N, 2] y"), "is int64, not float32", id="type"
        ),
        pytest.param(
            NET.replace("[N, 2] y)", "[N, 2] y, float[N, 2] s)"), "another output 's'", id="extra"
        ),
    ],
)
def test_another_signature_is_an_answer_that_names_it(
    save: Save, candidate: str, reason: str
) -> None:
    """Different names, types or ranks make the models different, without running them."""
    result = verify_equivalence(save(NET), save(candidate, "other"))

    assert not result.equivalent
    assert reason in reasons(result)
    assert result.outputs == ()


@pytest.mark.parametrize("last", ["Relu", "Neg"])
@pytest.mark.parametrize(
    ("ours", "theirs"), [("float", "float16"), ("float16", "float"), ("float", "bfloat16")]
)
def test_floats_of_two_types_are_measured_and_never_equivalent(
    save: Save, ours: str, theirs: str, last: str
) -> None:
    """Both are fed what both hold; the types are a reason, whatever the numbers say."""
    net = "g (TYPE[N, 4] x) => (TYPE[N, 4] y) { y = LAST (x) }"
    one = net.replace("TYPE", ours).replace("LAST", "Relu")
    if theirs == "bfloat16":  # for which onnxruntime has few kernels
        steps = "w = Cast <to = 1> (x)  v = LAST (w)  y = Cast <to = 16> (v)"
        net = net.replace("y = LAST (x)", steps)
    other = net.replace("TYPE", theirs).replace("LAST", last)

    result = verify_equivalence(save(one), save(other, "other"))

    assert not result.equivalent
    assert len(result.reasons) == 2
    assert result.reasons == result.retyped
    assert [output.ok for output in result.outputs] == [last == "Relu"] * 2
    assert result.is_retyped_alone == (last == "Relu")
    assert all(output.max_abs == 0 for output in result.outputs if output.ok)
    judged = "bfloat16" if "bfloat16" in {ours, theirs} else "float16"
    assert f"eps({judged})" in result.outputs[0].derivation


def test_swapped_inputs_are_noticed(save: Save) -> None:
    """Inputs in another order are another signature, although all names agree."""
    one = "g (float[2] a, float[2] b) => (float[2] y) { y = Sub (a, b) }"
    two = one.replace("float[2] a, float[2] b", "float[2] b, float[2] a")

    assert "another order" in reasons(verify_equivalence(save(one), save(two, "two")))


def test_an_input_with_one_size_alone_is_said_with_the_way_to_compare_there(save: Save) -> None:
    """A batch that the candidate fixes is not equivalent, and equivalent where it is asked for."""
    original = "g (float[batch, 2] x) => (float[batch, 2] y) { y = Relu (x) }"
    models = save(original), save(original.replace("batch", "4"), "fixed")

    result = verify_equivalence(*models)

    assert not result.equivalent
    assert "takes batch=4 alone" in result.reasons[0]
    assert "--shape batch=4" in result.reasons[0]
    assert verify_equivalence(*models, Check(sizes={"batch": 4})).equivalent
    wider = verify_equivalence(*models[::-1])
    assert wider.equivalent
    assert not wider.reasons


def test_candidate_that_onnxruntime_refuses_is_an_answer(save: Save) -> None:
    """A candidate that does not load is not equivalent, and onnxruntime's reason is on one line."""
    refused = NET.replace("y = Relu (s)", "y = NoSuchOperator (s)")

    result = verify_equivalence(save(NET), save(refused, "refused"))

    assert not result.equivalent
    assert len(result.reasons) == 2
    assert "does not run the candidate (optimisation off)" in result.reasons[0]
    assert "NoSuchOperator" in result.reasons[0]
    assert "\n" not in result.reasons[0]
    assert ".cc" not in result.reasons[0]


def test_candidate_that_fails_on_the_way_is_an_answer(save: Save) -> None:
    """A candidate that loads but breaks at these sizes is not equivalent."""
    fixed = NET.replace("t = MatMul (x, w)", "p = Reshape (x, d) t = MatMul (p, w)").replace(
        "<float[3, 2] w", "<int64[2] d = {5, 3}, float[3, 2] w"
    )

    result = verify_equivalence(save(NET), save(fixed, "fixed"))

    assert "Reshape" in reasons(result)


def test_original_that_onnxruntime_refuses_gives_no_verdict(save: Save) -> None:
    """Without a reference there is no answer, only an error with a way out."""
    path = save(NET.replace("Relu", "NoSuchOperator"))

    with pytest.raises(VerificationError, match="does not run the original model") as caught:
        verify_equivalence(path, path)
    assert "--no-verify" not in (caught.value.hint or "")  # an option of partition alone


def test_original_that_never_runs_gives_no_verdict(save: Save) -> None:
    """If no sizes work, the error says what onnxruntime said, and asks for sizes."""
    never = """g (float[N] x) => (float[a, b] y, float[c, d] z) <int64[2] e = {1, 7},
    int64[2] f = {1, 11}> { y = Reshape (x, e) z = Reshape (x, f) }"""
    path = save(never)

    with pytest.raises(VerificationError, match="no inputs were found") as caught:
        verify_equivalence(path, path)
    assert "sizes" in (caught.value.hint or "")
    assert ".cc:" not in caught.value.message


def test_original_made_for_another_processor_is_said_to_be_that(save: Save) -> None:
    """No size helps where onnxruntime blocked the channels for vectors of another width."""
    blocked = """
      <ir_version: 8, opset_import: ["" : 13, "com.microsoft.nchwc" : 1]>
      g (float[1, 12, 2, 2] x) => (float[1, 9, 2, 2] y) {
        y = com.microsoft.nchwc.ReorderOutput <channels = 9> (x)
      }"""  # 12 channels are no whole number of blocks, of 8 or of 16
    path = save(blocked)

    with pytest.raises(VerificationError, match="no inputs were found") as caught:
        verify_equivalence(path, path)
    assert "processors like the one" in (caught.value.hint or "")


@pytest.mark.parametrize("content", [b"", b"\xff\xff\xffnot a model"])
def test_files_that_hold_no_model_are_errors(tmp_path: Path, save: Save, content: bytes) -> None:
    """An unreadable file, on either side, is an error that names it."""
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(content)

    for pair in [(broken, save(NET)), (save(NET), broken), (save(NET), tmp_path / "absent.onnx")]:
        with pytest.raises(ModelLoadError, match=r"(broken|absent)\.onnx"):
            verify_equivalence(*pair)


def test_external_data_is_found_beside_each_model(save: Save, tmp_path: Path) -> None:
    """Weights outside the file are used, and a wrong weight there is noticed."""
    folders = []
    for name, factor in [("a", 1.0), ("b", 1.0), ("c", 1.01)]:
        model = onnx.load(save(NET))
        for tensor in model.graph.initializer:
            values = onnx.numpy_helper.to_array(tensor) * np.float32(factor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        onnx.save(
            model,
            folders[-1] / "m.onnx",
            save_as_external_data=True,
            location="w.bin",
            size_threshold=0,
        )
    ours, same, other = (folder / "m.onnx" for folder in folders)

    assert verify_equivalence(ours, same).equivalent
    assert not verify_equivalence(ours, other).equivalent


def test_output_that_ignores_the_input_is_a_warning(save: Save) -> None:
    """A model that multiplies by zero is equivalent to itself, but the report says: no power."""
    blind = "g (float[3] x) => (float[3] y) <float z = {0}> { y = Mul (x, z) }"
    path = save(blind)

    result = verify_equivalence(path, path)

    assert result.equivalent
    assert result.blind_outputs == ("y",)
    assert "does not change with the input" in result.warnings[0]


def test_blindness_shows_with_one_seed_too(save: Save) -> None:
    """One seed is enough for the warning: another one is drawn for the original only."""
    path = save("g (float[3] x) => (float[3] y) <float z = {0}> { y = Mul (x, z) }")

    result = verify_equivalence(path, path, Check(seeds=(7,)))

    assert result.blind_outputs == ("y",)
    assert result.seeds == (7,)


def test_tolerance_that_cannot_fail_is_a_warning(save: Save) -> None:
    """A tolerance wider than what the input moves has no power, and the report says so."""
    path = save(NET)

    result = verify_equivalence(path, path, Check(atol=1e6))

    assert result.blind_outputs == ("y",)


def test_nan_everywhere_is_a_warning(save: Save) -> None:
    """NaN equals NaN in place, but the reader is told that there is nothing else."""
    path = save("g (float[3] x) => (float[3] y) <float z = {0}> { o = Mul (x, z) y = Div (o, z) }")

    result = verify_equivalence(path, path)

    assert result.equivalent
    assert any("does not change" in w or "NaN" in w for w in result.warnings)


def test_nan_in_the_candidate_only_fails(save: Save) -> None:
    """A NaN where the original has a number is a mismatch and counted as such."""
    original = "g (float[2, 8] x) => (float[2, 8] y) { y = Identity (x) }"
    candidate = "g (float[2, 8] x) => (float[2, 8] y) { l = Sqrt (x) y = Mul (l, l) }"

    result = verify_equivalence(save(original), save(candidate, "nan"))

    assert not result.equivalent
    assert result.outputs[0].nan_mismatches > 0


def test_another_shape_of_an_output_fails_with_both_shapes(save: Save) -> None:
    """Undeclared dimensions may hide a wrong shape from the signature, not from the run."""
    original = "g (float[2, 3] x) => (float[a, b] y) { y = Identity (x) }"
    candidate = original.replace("Identity", "Transpose <perm = [1, 0]>")

    result = verify_equivalence(save(original), save(candidate, "t"))

    assert "its shape is (3, 2), not (2, 3)" in reasons(result)


def test_sequence_of_another_length_fails(save: Save) -> None:
    """A sequence output is compared element by element, and its length counts."""
    text = """g (float[2, 3] x) => (seq(float[2, 3]) y) { y = SequenceConstruct (%s) }"""

    assert verify_equivalence(save(text % "x, x"), save(text % "x, x", "same")).equivalent
    shorter = verify_equivalence(save(text % "x, x"), save(text % "x", "short"))
    assert "holds 1 elements" in reasons(shorter)


@pytest.mark.parametrize("dtype", ["float16", "double", "bfloat16"])
def test_every_float_type_is_compared_with_its_own_tolerance(save: Save, dtype: str) -> None:
    """An error of 50 % fails in every float type, and the tolerance is wider in half precision."""
    text = f"""<ir_version: 9, opset_import: ["" : 19]>
    g ({dtype}[2, 8] x) => ({dtype}[2, 8] y)
    {{ f = Cast <to = 1> (x) c = Constant <value = float {{%s}}> () m = Mul (f, c)
       y = Cast <to = {onnx.TensorProto.DataType.Value(dtype.upper())}> (m) }}"""

    assert verify_equivalence(save(text % "1"), save(text % "1", "same")).equivalent
    result = verify_equivalence(save(text % "1"), save(text % "1.5", "off"))
    assert not result.equivalent
    assert result.outputs[0].dtype == dtype.replace("double", "float64")


def test_agreement_with_the_plain_original_is_enough(save: Save) -> None:
    """At an optimised level too, the baseline named is the original without optimisation."""
    said: list[str] = []
    path = save(NET)

    result = verify_equivalence(path, path, Check(levels=("all",)), progress=said.append)

    assert [(o.level, o.baseline) for o in result.outputs] == [("all", "disable")]
    assert not any("original" in phrase and "level all" in phrase for phrase in said)


def test_json_is_stable_and_finite(save: Save) -> None:
    """The JSON form is the same for two runs, holds no NaN, and follows the schema's order."""
    paths = save(NET), save(NET.replace("Relu", "Log"), "log")

    first, second = (json.dumps(parts_of(verify_equivalence(*paths))) for _ in range(2))

    assert first == second
    assert "NaN" not in first
    assert "Infinity" not in first
    decoded = json.loads(first)
    assert list(decoded)[:3] == ["schema", "equivalent", "verdict"]
    assert decoded["schema"] == "dpl.verify/1"
    assert str(paths[0].parent) not in first


def test_progress_says_what_takes_long(save: Save) -> None:
    """Each session is announced with model, size and level."""
    said: list[str] = []
    path = save(NET)

    verify_equivalence(path, path, progress=said.append)

    assert said[0] == "creating a session for the original (3 nodes), optimisation off"
    assert "creating a session for the candidate (3 nodes), optimisation level all" in said


def test_onnxruntime_stays_silent(save: Save, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither a refused model nor a failed attempt writes to standard output or error."""
    verify_equivalence(save(NET), save(NET.replace("Relu", "NoSuchOperator"), "refused"))

    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "settings",
    [
        {"seeds": ()},
        {"seeds": (-1,)},
        {"levels": ("most",)},
        {"levels": ()},
        {"rtol": -1.0},
        {"atol": float("nan")},
        {"sizes": {"N": -1}},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object]) -> None:
    """A setting that could not mean anything is an error before any work."""
    with pytest.raises(UsageError):
        Check(**settings)  # type: ignore[arg-type]


CHOICE = """g (float[1, 4] x) => (int64[1] y)
    { h = OP (x)  y = ArgMax <axis = 1, keepdims = 0> (h) }"""


def test_a_few_choices_from_other_numbers_are_another_model(save: Save) -> None:
    """Labels may agree; what they are chosen from does not, and it is named."""
    ours = save(CHOICE.replace("OP", "Tanh"))
    found = verify_equivalence(ours, save(CHOICE.replace("OP", "Sin"), "theirs"))
    assert found.verdict == "different"
    assert not found.accepted
    assert parts_of(found)["equivalent"] is False
    assert found.objections[0].startswith("Tanh 'h', fed what the original computes: ")


def test_choices_from_the_same_numbers_are_enough(save: Save) -> None:
    """However few there are: places say it."""
    ours = save(CHOICE.replace("OP (x)", "Add (x, x)"))
    other = "two = Constant <value_float = 2.0> ()  h = Mul (x, two)"
    found = verify_equivalence(ours, save(CHOICE.replace("h = OP (x)", other), "theirs"))
    assert found.verdict == "equivalent"


def test_blind_outputs_say_nothing_where_places_are_not_judged(save: Save) -> None:
    """Where they are, a bound that nothing can reach decides; another bound is another model."""
    net = "g (float[4, 4] x) => (float[4, 4] y) <float low = {2}> { h = OP (x)  y = Max (h, low) }"
    ours, theirs = save(net.replace("OP", "Tanh")), save(net.replace("OP", "Sin"), "theirs")
    found = verify_equivalence(ours, theirs, Check(atol=1e-3))
    assert found.verdict == "inconclusive"
    assert "no output changes with the inputs" in found.doubts[0]
    assert verify_equivalence(ours, theirs).verdict == "equivalent"  # neither exceeds 1
    theirs = save(net.replace("OP (x)", "Tanh (x)").replace("{2}", "{1.5}"), "other")
    assert verify_equivalence(ours, theirs).verdict == "different"


def fail_at_all(monkeypatch: pytest.MonkeyPatch, *which: str) -> None:
    """Let the optimiser of onnxruntime crash on these models, as every version does on some."""

    class Fussy(Runner):
        """Makes sessions without optimisation alone."""

        def __init__(self, source: ModelSource, level: str) -> None:
            if level == "all" and source.name in which:
                raise StoppedError("crashed (SIGABRT)", f"creating a session for the {source.name}")
            super().__init__(source, level)

    monkeypatch.setattr(equivalence, "Runner", Fussy)


NOWHERE = "neither model runs, optimisation level all, so nothing is compared there"


def test_a_crash_on_both_models_is_not_the_fault_of_the_candidate(
    save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can be compared decides, and a warning says what cannot."""
    path, wrong = save(NET), save(NET.replace("-1.25", "-1.2"), "wrong")
    fail_at_all(monkeypatch, "original", "candidate")

    same, other = (verify_equivalence(path, each) for each in (path, wrong))

    assert same.equivalent
    assert not other.equivalent
    for found in (same, other):
        assert {output.level for output in found.outputs} == {"disable"}
        assert NOWHERE in found.warnings
        assert not found.reasons


def test_a_crash_on_the_candidate_alone_is_its_fault(
    save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original shows that there is something to compare with."""
    path = save(NET)
    fail_at_all(monkeypatch, "candidate")

    found = verify_equivalence(path, path)

    assert not found.equivalent
    assert found.reasons == ("onnxruntime crashed (SIGABRT) creating a session for the candidate",)


def test_a_crash_on_both_models_at_the_only_level_is_no_verdict(
    save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was compared; a proof stands without that."""
    path, other = save(NET), save(NET.replace("-1.25", "-1.2"), "other")
    fail_at_all(monkeypatch, "original", "candidate")
    settings = Check(levels=("all",))

    with pytest.raises(
        VerificationError, match="no verdict: neither model runs: onnxruntime crash"
    ):
        verify_equivalence(path, other, settings)
    found = verify_equivalence(path, path, settings, prove=True)
    assert found.proof is not None
    assert found.equivalent
    assert NOWHERE in found.warnings


@pytest.mark.long
def test_functions_that_stand_for_too_many_nodes_are_proved_and_not_run(tmp_path: Path) -> None:
    """Each calls the one before twice, 16 deep: onnxruntime would take minutes to expand that."""
    bodies = ["b = Relu (a) r = Relu (b)"]
    bodies += [f"b = l.f{k} (a) r = l.f{k} (b)" for k in range(15)]
    functions = (
        f'<domain: "l", opset_import: ["" : 21, "l" : 1]> f{k} (a) => (r) {{ {body} }}'
        for k, body in enumerate(bodies)
    )
    head = '<ir_version: 10, opset_import: ["" : 21, "l" : 1]>'
    text = f"{head} g (float[2] x) => (float[2] y) {{ y = l.f15 (x) }} {' '.join(functions)}"
    path, other = tmp_path / "m.onnx", tmp_path / "other.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    onnx.save(onnx.parser.parse_model(text.replace("b = Relu", "b = Tanh")), other)
    result = verify_equivalence(path, path, Check(), prove=True)
    assert result.equivalent
    assert "would expand them all" in result.warnings[0]
    with pytest.raises(VerificationError, match="would expand them all"):
        verify_equivalence(path, other, Check(), prove=True)
