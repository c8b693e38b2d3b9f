"""What the commands answer and write: exit codes 0 and 1, and which files are there afterwards."""

import shutil
import stat
from pathlib import Path

import onnx
import pytest

from tests.cli.support import SAMPLES, Catalogue, Dpl, Save, contents

DNNL = ("partition", "m.onnx", "--target", "dnnl")
UNMET = ("--expect", "dnnl.conv2d_bias_relu>=3")
# A function that stands for Relu under a name for which onnxruntime has a kernel of its own.
USURPER = "dpl: 1\ntarget: com.microsoft\npatterns: [{name: Gelu, pattern: Relu(x)}]\n"


def calls(path: Path) -> list[str]:
    """Return the calls of dnnl functions in the main graph."""
    graph = onnx.load(path, load_external_data=False).graph
    return [node.op_type for node in graph.node if node.domain == "dnnl"]


@pytest.mark.usefixtures("model")
def test_success_prints_a_table_and_writes_one_valid_file(dpl: Dpl, folder: Path) -> None:
    """Exit 0, the counts and the verdict on stdout, nothing on stderr, one new file."""
    answer = dpl(*DNNL, "-o", "out.onnx")

    assert (answer.code, answer.err) == (0, "")
    assert "dnnl.conv2d_bias_relu        2          1        0" in answer.out
    assert "it gives the same bits in onnxruntime (seeds 0, 1)." in answer.out
    assert "Wrote out.onnx." in answer.out
    assert sorted(contents(folder)) == ["m.onnx", "out.onnx"]
    onnx.checker.check_model(onnx.load(folder / "out.onnx"), full_check=True)
    assert calls(folder / "out.onnx") == ["conv2d_bias", "conv2d_bias_relu", "conv2d_bias_relu"]


@pytest.mark.usefixtures("model")
def test_an_older_output_is_replaced_in_one_step(dpl: Dpl, folder: Path) -> None:
    """Whoever has the old file open keeps it whole; the name leads to the new one."""
    (folder / "out.onnx").write_bytes(b"old")
    (folder / "kept.onnx").hardlink_to(folder / "out.onnx")

    assert dpl(*DNNL, "-o", "out.onnx").code == 0

    assert (folder / "kept.onnx").read_bytes() == b"old"
    assert len(calls(folder / "out.onnx")) == 3


def test_the_default_output_lies_beside_the_model(dpl: Dpl, folder: Path) -> None:
    """MODEL.partitioned.onnx, in the model's folder and not in the working directory."""
    (folder / "sub").mkdir()
    shutil.copy(SAMPLES / "residual_block.onnx", folder / "sub" / "net.v2.onnx")

    answer = dpl("partition", "sub/net.v2.onnx", "--target", "dnnl")

    assert answer.code == 0
    assert sorted(contents(folder)) == ["sub/net.v2.onnx", "sub/net.v2.partitioned.onnx"]
    assert "Wrote sub/net.v2.partitioned.onnx." in answer.out


def test_in_place_replaces_the_model_in_one_step(dpl: Dpl, folder: Path, model: Path) -> None:
    """The result has the model's name; a hard link to the old file still has all of it."""
    before = model.read_bytes()
    (folder / "kept.onnx").hardlink_to(model)

    answer = dpl(*DNNL, "--in-place")

    assert answer.code == 0
    assert sorted(contents(folder)) == ["kept.onnx", "m.onnx"]
    assert (folder / "kept.onnx").read_bytes() == before
    assert len(calls(model)) == 3


def test_in_place_keeps_the_permissions(dpl: Dpl, model: Path) -> None:
    """A private model stays private."""
    model.chmod(0o600)

    assert dpl(*DNNL, "--in-place").code == 0
    assert stat.S_IMODE(model.stat().st_mode) == 0o600


def test_in_place_follows_a_link(dpl: Dpl, folder: Path, model: Path) -> None:
    """What a link leads to is replaced, and the link stays a link."""
    (folder / "link.onnx").symlink_to("m.onnx")

    assert dpl("partition", "link.onnx", "--target", "dnnl", "--in-place").code == 0
    assert (folder / "link.onnx").is_symlink()
    assert len(calls(model)) == 3


def test_a_second_run_in_place_changes_nothing(dpl: Dpl, model: Path) -> None:
    """Partitioning a partitioned model finds nothing and keeps every byte."""
    assert dpl(*DNNL, "--in-place").code == 0
    once = model.read_bytes()

    answer = dpl(*DNNL, "--in-place")

    assert (answer.code, answer.err) == (0, "")
    assert "unchanged" in answer.out
    assert model.read_bytes() == once


def test_a_model_without_matches_is_copied_byte_for_byte(
    dpl: Dpl, folder: Path, model: Path, catalogue: Catalogue
) -> None:
    """Nothing to do is success: the output exists, and is the input."""
    answer = dpl("partition", model, "-p", catalogue("Sigmoid(x)"), "-o", "out.onnx")

    assert (answer.code, answer.err) == (0, "")
    assert "unchanged" in answer.out
    assert (folder / "out.onnx").read_bytes() == model.read_bytes()


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("options", [("-o", "out.onnx"), (), ("--in-place",)])
def test_an_unmet_expectation_writes_nothing(
    dpl: Dpl, folder: Path, options: tuple[str, ...]
) -> None:
    """Exit 1, what was expected and found on stderr, the table all the same, no file touched."""
    before = contents(folder)

    answer = dpl(*DNNL, *options, *UNMET)

    assert answer.code == 1
    assert "expected dnnl.conv2d_bias_relu>=3, found 2" in answer.err
    assert "nothing was written" in answer.err
    assert "error" not in answer.err
    assert "dnnl.conv2d_bias_relu" in answer.out
    assert "Wrote" not in answer.out
    assert contents(folder) == before


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (("-o", "out.onnx"), "out.failed.onnx"),
        ((), "m.partitioned.failed.onnx"),
        (("--in-place",), "m.failed.onnx"),
    ],
)
def test_keep_failed_keeps_the_result_beside(
    dpl: Dpl, folder: Path, options: tuple[str, ...], kept: str
) -> None:
    """Exit 1 as before, and the result as OUTPUT.failed.onnx, which stderr names."""
    before = contents(folder)

    answer = dpl(*DNNL, *options, *UNMET, "--keep-failed")

    assert answer.code == 1
    assert f"kept as {kept}" in answer.err
    after = contents(folder)
    assert len(calls(folder / kept)) == 3
    assert {**after, kept: b""} == {**before, kept: b""}


@pytest.mark.usefixtures("model")
def test_keep_failed_keeps_nothing_of_a_success(dpl: Dpl, folder: Path) -> None:
    """Without a failure there is nothing to keep."""
    assert dpl(*DNNL, "-o", "out.onnx", "--keep-failed").code == 0
    assert sorted(contents(folder)) == ["m.onnx", "out.onnx"]


EXPECTATIONS = [
    ("dnnl.conv2d_bias_relu>=2", 0),
    ("dnnl.conv2d_bias_relu >= 3", 1),
    ("dnnl.conv2d_bias_relu==2", 0),
    ("dnnl.conv2d_bias_relu=3", 1),
    ("dnnl.conv2d_bias_relu<=2", 0),
    ("dnnl.conv2d_bias_relu<2", 1),
    ("dnnl.conv2d_bias_relu>1", 0),
    ("dnnl.conv2d_bias_relu>2", 1),
    ("dnnl.conv2d_bn_relu==0", 0),
    ("dnnl.conv2d_bn_relu>0", 1),
]


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(("expectation", "code"), EXPECTATIONS)
def test_expectations_become_exit_codes(dpl: Dpl, expectation: str, code: int) -> None:
    """Every relation, met and unmet, for rules that match and rules that do not."""
    answer = dpl("match", "m.onnx", "--target", "dnnl", "--expect", expectation)

    assert answer.code == code
    assert ("found" in answer.err) == (code == 1)


@pytest.mark.usefixtures("model")
def test_all_expectations_must_be_met(dpl: Dpl) -> None:
    """Each unmet one is named; a met one beside it does not help."""
    names = ["dnnl.conv2d_bias_relu>=2", "dnnl.conv2d_bias>=2", "dnnl.conv2d>=1"]
    options = [word for name in names for word in ("--expect", name)]

    answer = dpl("match", "m.onnx", "--target", "dnnl", *options)

    assert answer.code == 1
    assert answer.err.splitlines() == [
        "dpl: expected dnnl.conv2d_bias>=2, found 1",
        "dpl: expected dnnl.conv2d>=1, found 0",
    ]


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("keep", [False, True])
def test_a_result_that_computes_something_else_is_not_written(
    dpl: Dpl, folder: Path, *, keep: bool
) -> None:
    """Exit 1, the output that differs is named; the result is kept only if asked for."""
    (folder / "rules.yaml").write_text(USURPER)
    before = contents(folder)

    options = ("-o", "o.onnx", "--all-or-nothing", *["--keep-failed"][: int(keep)])
    answer = dpl("partition", "m.onnx", "-p", "rules.yaml", *options)

    assert answer.code == 1
    assert "global_out" in answer.out
    assert "NOT equivalent" in answer.out
    assert "not equivalent to the original" in answer.err
    assert contents(folder).keys() == before.keys() | ({"o.failed.onnx"} if keep else set())


def test_verify_answers_yes_and_no(dpl: Dpl, save: Save) -> None:
    """0 for the same computation written otherwise, 1 for another one, which names the output."""
    text = "g (float[2, 3] x) => (float[2, 3] y, float[2, 3] z) {{ y = Abs (x) z = {} }}"
    save(text.format("Add (x, x)"), "a.onnx")
    save(text.format("Mul (two, x)").replace("{ y", "<float two = {2}> { y"), "b.onnx")
    save(text.format("Mul (x, x)"), "c.onnx")

    yes, no = dpl("verify", "a.onnx", "b.onnx"), dpl("verify", "a.onnx", "c.onnx")

    assert (yes.code, yes.err) == (0, "")
    assert "Equivalent" in yes.out
    assert no.code == 1
    assert "z at level disable: " in no.out
    assert "y at level" not in no.out
    assert "NOT equivalent" in no.out


def test_another_interface_is_no(dpl: Dpl, save: Save) -> None:
    """A missing output or another type of input is a difference, not a failure to compare."""
    save("g (float[2] x) => (float[2] y, float[2] z) { y = Abs (x) z = Neg (x) }", "a.onnx")
    save("g (float[2] x) => (float[2] y) { y = Abs (x) }", "b.onnx")
    save("g (double[2] x) => (double[2] y, double[2] z) { y = Abs (x) z = Neg (x) }", "c.onnx")

    for other, culprit in (("b.onnx", "z"), ("c.onnx", "x")):
        answer = dpl("verify", "a.onnx", other)
        assert answer.code == 1
        assert culprit in answer.out
        assert "NOT equivalent" in answer.out


def test_a_candidate_that_is_meant_to_differ_gets_a_hint(dpl: Dpl, save: Save) -> None:
    """Quantised, or of another precision; not if both are quantised, or one is merely wrong."""
    head = "g (float[2, 4] x) => (float[2, 4] y) <float s = {0.01}, uint8 z = {128}>"
    steps = "q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)"
    save(f"{head} {{ y = Tanh (x) }}", "float.onnx")
    save(f"{head} {{ {steps}  y = Tanh (d) }}", "steps.onnx")
    save(f"{head} {{ {steps}  y = Sin (d) }}", "others.onnx")
    save(f"{head} {{ y = Sin (x) }}", "wrong.onnx")
    save("g (float16[2, 4] x) => (float16[2, 4] y) { y = Tanh (x) }", "half.onnx")

    def hint(one: str, other: str) -> str:
        answer = dpl("verify", one, other)
        assert answer.code == 1
        lines = [line for line in answer.out.splitlines() if line.startswith("hint: ")]
        return "".join(lines)

    assert "is quantised" in hint("float.onnx", "steps.onnx")
    assert "dpl accuracy float.onnx steps.onnx --layers tells" in hint("float.onnx", "steps.onnx")
    assert "is of another precision" in hint("float.onnx", "half.onnx")
    assert not hint("steps.onnx", "others.onnx")
    assert not hint("float.onnx", "wrong.onnx")


def test_the_last_line_says_why_the_exit_code_is_what_it_is(dpl: Dpl, model: Path) -> None:
    """Equivalent, but not as asked; or nothing was run, since there is nothing to feed alike."""
    answer = dpl("verify", model, model, "--min-power", "1", "--mutants", "1", "--rtol", "1e30")
    assert answer.code == 1
    last = answer.out.splitlines()[-1]
    assert last.startswith("Equivalent ")
    assert last.endswith("; but the check notices too little to be trusted (--min-power).")

    answer = dpl("verify", model, SAMPLES / "light_squeezenet.onnx")
    assert answer.code == 1
    last = answer.out.splitlines()[-1]
    assert last == "NOT equivalent: inputs or outputs differ, so nothing was run."
