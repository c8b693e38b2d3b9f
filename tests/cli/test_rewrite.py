"""``dpl rewrite``: what it applies and where, what it prints and writes, when the answer is no."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.cli.support import SAMPLES, Dpl, Save, contents

Rewrites = Callable[..., Path]

TWICE = "g (float[2] x) => (float[2] y) { [a] s = Add (x, x) [b] y = Add (s, s) }"
TO_MUL = "{name: to_mul, pattern: 'Add(x, x)', replacement: 'Mul(x, 2.0)'}"
NEVER = "{name: never, pattern: 'Tanh(Tanh(x))', replacement: 'Tanh(x)'}"
WRONG = "{name: wrong, pattern: 'Neg(x)', replacement: 'Abs(x)'}"
THERE = "{name: there, pattern: 'Add(x, y)', replacement: 'Sum(x, y)'}"
BACK = "{name: back, pattern: 'Sum(x, y)', replacement: 'Add(x, y)'}"
REWRITE = ("rewrite", "m.onnx", "-p", "rules.yaml")
OUT = ("-o", "out.onnx")


@pytest.fixture
def rewrites(folder: Path) -> Rewrites:
    """Return a function that writes a catalogue of these rewrites."""

    def write(*rules: str, name: str = "rules.yaml") -> Path:
        path = folder / name
        items = "".join(f"  - {rule}\n" for rule in rules)
        path.write_text(f"dpl: 1\nrewrites:\n{items}", encoding="utf-8")
        return path

    return write


@pytest.fixture
def twice(save: Save, rewrites: Rewrites) -> Path:
    """Return a model in which the rule ``to_mul`` applies twice, and ``never`` does not."""
    rewrites(TO_MUL, NEVER)
    return save(TWICE)


def ops(path: Path) -> list[str]:
    """Return the operators of the main graph, in order."""
    return [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]


# -- what is applied -------------------------------------------------------------------------------

TABLE = """\
rule    applied  refused
to_mul        2        0
1 other rule does not apply.

operator   before  after
Add             2      0
Mul             0      2
all nodes       2      2
bytes          {before}    {after}
2 applications in 1 round.

Equivalent in onnxruntime (seeds 0, 1); each of 2 changed places gives the same by itself.
Wrote out.onnx.
"""


def test_success_prints_tables_and_writes_one_valid_file(
    dpl: Dpl, folder: Path, twice: Path
) -> None:
    """Rules, operators whose number changed, sizes, rounds, the check; nothing on stderr."""
    answer = dpl(*REWRITE, *OUT)

    written = folder / "out.onnx"
    sizes = {"before": twice.stat().st_size, "after": written.stat().st_size}
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == TABLE.format(**sizes)
    assert sorted(contents(folder)) == ["m.onnx", "out.onnx", "rules.yaml"]
    onnx.checker.check_model(onnx.load(written), full_check=True)
    assert ops(written) == ["Mul", "Mul"]


@pytest.mark.usefixtures("twice")
def test_verbose_shows_the_figures_behind_the_verdict(dpl: Dpl) -> None:
    """Outputs, and where tolerances come from; without -v only if the check fails."""
    lines = dpl(*REWRITE, *OUT, "-v").out.splitlines()

    assert "y       disable        0        0        0  1.5e-05  1.7e-05   0 %  ok" in lines
    assert "tolerance of y: 4 x eps(float32) x sqrt(1,024 roundings, the least)" in lines


def test_the_default_output_lies_beside_the_model(dpl: Dpl, folder: Path, twice: Path) -> None:
    """MODEL.rewritten.onnx, in the model's folder."""
    (folder / "sub").mkdir()
    twice.rename(folder / "sub" / "net.v2.onnx")

    answer = dpl("rewrite", "sub/net.v2.onnx", "-p", "rules.yaml")

    assert answer.code == 0
    assert "Wrote sub/net.v2.rewritten.onnx." in answer.out
    assert ops(folder / "sub" / "net.v2.rewritten.onnx") == ["Mul", "Mul"]


def test_in_place_replaces_the_model(dpl: Dpl, folder: Path, twice: Path) -> None:
    """A second run finds nothing and keeps every byte."""
    assert dpl(*REWRITE, "--in-place").code == 0
    once = twice.read_bytes()
    answer = dpl(*REWRITE, "--in-place")

    assert (answer.code, twice.read_bytes()) == (0, once)
    assert "Wrote m.onnx, unchanged." in answer.out
    assert ops(twice) == ["Mul", "Mul"]
    assert sorted(contents(folder)) == ["m.onnx", "rules.yaml"]


def test_without_a_match_the_output_is_a_copy(
    dpl: Dpl, folder: Path, twice: Path, rewrites: Rewrites
) -> None:
    """Nothing to do is success, and needs no check."""
    rewrites(NEVER)

    answer = dpl(*REWRITE, *OUT)

    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "The rule does not apply.\nWrote out.onnx, unchanged.\n"
    assert (folder / "out.onnx").read_bytes() == twice.read_bytes()


def test_a_refused_match_is_counted_with_its_reason(
    dpl: Dpl, folder: Path, save: Save, rewrites: Rewrites
) -> None:
    """A value that is read outside stays, and the table says so."""
    rewrites("{name: r, pattern: 'Abs(Neg(x))', replacement: 'Abs(x)', escape: refuse}")
    save("g (float[2] x) => (float[2] y, float[2] n) { n = Neg (x) y = Abs (n) }")

    answer = dpl(*REWRITE, *OUT, "-v")

    assert answer.code == 0
    (row,) = [line for line in answer.out.splitlines() if line.startswith("r           0")]
    assert "escape: " in row
    assert "r     Abs y  escape" in answer.out
    assert (folder / "out.onnx").read_bytes() == (folder / "m.onnx").read_bytes()


@pytest.mark.usefixtures("twice")
@pytest.mark.parametrize(
    ("options", "left", "stopped"),
    [
        (("--limit", "0"), ["Add", "Add"], False),
        (("--limit", "1"), ["Add", "Mul"], True),
        (("--limit", "9"), ["Mul", "Mul"], False),
        (("--only", "to_mul"), ["Mul", "Mul"], False),
        (("--only", "to_mul@a"), ["Mul", "Add"], False),
        (("--only", "to_mul@y"), ["Add", "Mul"], False),
        (("--only", "@y"), ["Add", "Mul"], False),
        (("--only", "never"), ["Add", "Add"], False),
        (("--only", "never", "--only", "to_mul@a"), ["Mul", "Add"], False),
        (("--skip", "to_mul"), ["Add", "Add"], False),
        (("--skip", "never"), ["Mul", "Mul"], False),
        (("--skip", "to_mul@a"), ["Add", "Mul"], False),
        (("--skip", "@y"), ["Mul", "Add"], False),
        (("--only", "to_mul@a", "--skip", "@s"), ["Add", "Add"], False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_only_skip_and_limit_narrow_what_is_done(
    dpl: Dpl, folder: Path, options: tuple[str, ...], left: list[str], *, stopped: bool
) -> None:
    """Rules everywhere or at one node, which is named by itself or by what it makes."""
    answer = dpl(*REWRITE, *OUT, *options)

    assert (answer.code, answer.err) == (0, "")
    assert ops(folder / "out.onnx") == left
    assert ("1 application in 1 round, then stopped as asked." in answer.out) == stopped


@pytest.mark.usefixtures("twice")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "1 other rule does not apply."),
        (("--only", "to_mul"), ""),
        (("--only", "@a"), "1 other rule does not apply."),
        (("--skip", "never"), ""),
        (("--skip", "never@a"), "1 other rule does not apply."),
        (("--only", "never"), "The rule does not apply."),
        (("--skip", "to_mul", "--skip", "never"), "No rule was to be tried."),
        (("--limit", "1"), ""),
        (("--limit", "0"), "Stopped before any rule was applied."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_of_rules_that_were_not_to_be_tried_nothing_is_said(
    dpl: Dpl, options: tuple[str, ...], told: str
) -> None:
    """Nobody has looked whether they do."""
    answer = dpl(*REWRITE, *OUT, *options)

    assert answer.code == 0
    shown = [
        line
        for line in answer.out.splitlines()
        if "not apply" in line or "ny rule" in line or "No rule" in line
    ]
    assert shown == ([told] if told else [])


def test_a_node_to_skip_that_never_comes_up_is_noted(dpl: Dpl, twice: Path) -> None:
    """A name that is misspelt, or that a rule would have made, is no error, but is said."""
    answer = dpl("rewrite", twice, "-p", "rules.yaml", *OUT, "--skip", "to_mul@z", "--skip", "@a")

    assert answer.code == 0
    assert "note: --skip to_mul@z: this never came up" in answer.out
    assert "@a" not in answer.out


WRONG_NAMES = {
    "rule": (("--only", "to_mull"), "there is no rule 'to_mull'", "did you mean 'to_mul'?"),
    "skipped-rule": (("--skip", "to_mull@a"), "there is no rule 'to_mull'", "'to_mul'?"),
    "unlike-any": (("--only", "xyz"), "there is no rule 'xyz'", "there are: never, to_mul"),
    "node": (("--only", "to_mul@aa"), "'aa': no node has this name", "did you mean 'a'?"),
    "value-without-node": (("--only", "to_mul@x"), "'x': no node has this name", ""),
    "nothing": (("--only", ""), "names nothing", "RULE@NODE"),
    "no-node": (("--only", "to_mul@"), "names nothing", "RULE@NODE"),
    "no-node-to-skip": (("--skip", "@"), "names nothing", "RULE@NODE"),
    "negative-limit": (("--limit", "-1"), "-1", "dpl rewrite --help"),
    "growth": (("--max-growth", "much"), "'much' is not a number of percent", ""),
    "negative-growth": (("--max-growth", "-5"), "'-5' is not a number of percent", ""),
    "endless-growth": (("--max-growth", "inf"), "'inf' is not a number of percent", ""),
    "expect": (("--expect", "to_mull>=1"), "there is no rule 'to_mull'", "'to_mul'?"),
    "two-outputs": (("--in-place",), "--in-place and --output contradict", ""),
    "dry-and-each": (("--dry-run", "--verify-each"), "--verify-each and --dry-run", ""),
    "none-and-each": (("--no-verify", "--verify-each"), "--verify-each and --no-verify", ""),
    "two-on-stdout": (("--json", "-", "--trace"), "both want standard output", "file"),
    "two-jsons": (("--json", "-", "--trace-json", "-"), "both want standard output", "file"),
    "two-traces": (("--trace", "--trace-json", "-"), "both want standard output", "file"),
    "one-file": (("--json", "a.json", "--trace-json", "a.json"), "--trace-json a.json: is", ""),
}


@pytest.mark.usefixtures("twice")
@pytest.mark.parametrize(("options", "message", "hint"), WRONG_NAMES.values(), ids=WRONG_NAMES)
def test_wrong_usage_is_refused(
    dpl: Dpl, folder: Path, options: tuple[str, ...], message: str, hint: str
) -> None:
    """Exit 2, one message with a way out, nothing written."""
    before = contents(folder)

    answer = dpl(*REWRITE, *OUT, *options)

    assert answer.code == 2
    assert message in answer.message
    assert hint in answer.hint
    assert answer.out == ""
    assert contents(folder) == before


def test_a_catalogue_without_rewrites_is_named(dpl: Dpl, twice: Path) -> None:
    """Whoever takes a catalogue for the other command is told."""
    answer = dpl("rewrite", twice, "-p", "conv_relu")

    assert answer.code == 2
    assert answer.message == "conv_relu: no rules that replace"
    assert answer.hint == "its rules outline: dpl partition applies them"


def test_rules_of_several_catalogues_are_applied(
    dpl: Dpl, folder: Path, save: Save, rewrites: Rewrites
) -> None:
    """In the order given: what the first makes, the second may replace."""
    rewrites(TO_MUL)
    rewrites("{name: next, pattern: 'Mul(x, 2.0)', replacement: 'Sum(x, x)'}", name="more.yaml")
    save(TWICE)

    answer = dpl(*REWRITE, "-p", "more.yaml", *OUT, "--expect", "next==2", "--expect", "to_mul=2")

    assert answer.code == 0
    assert ops(folder / "out.onnx") == ["Sum", "Sum"]


FUNCTION = """
import numpy as np

from dplcli.language import RewriteRule, is_op, wildcard

def spell(match, build):
    return build.op("Mul", match["x"], build.constant(np.float32(2)))

x = wildcard("x")
CATALOG = [RewriteRule("to_mul", is_op("Add")(x, x), spell)]
"""


def test_a_rule_may_be_a_python_function(dpl: Dpl, folder: Path, twice: Path) -> None:
    """A catalogue in Python is executed."""
    (folder / "rules.py").write_text(FUNCTION)

    assert dpl("rewrite", twice, "-p", "rules.py", *OUT).code == 0
    assert ops(folder / "out.onnx") == ["Mul", "Mul"]


def test_yaml_runs_code_only_with_leave(
    dpl: Dpl, folder: Path, twice: Path, rewrites: Rewrites
) -> None:
    """``function: module:name`` needs --allow-code."""
    (folder / "code.py").write_text(FUNCTION)
    rewrites("{name: r, pattern: 'Add(x, x)', function: 'code:spell'}")

    refused = dpl("rewrite", twice, "-p", "rules.yaml", *OUT)
    assert (refused.code, "--allow-code" in refused.hint) == (2, True)
    assert dpl("rewrite", twice, "-p", "rules.yaml", *OUT, "--allow-code").code == 0
    assert ops(folder / "out.onnx") == ["Mul", "Mul"]


# -- the answer is no ------------------------------------------------------------------------------


@pytest.fixture
def broken(save: Save, rewrites: Rewrites) -> Path:
    """Return a model for which the second rule of the catalogue is wrong."""
    rewrites(TO_MUL, WRONG, NEVER)
    return save("g (float[2] x) => (float[2] y) { [a] s = Add (x, x) [n] t = Neg (s) y = Exp (t) }")


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("options", [OUT, (), ("--in-place",)], ids=["-o", "default", "in-place"])
def test_a_wrong_rule_writes_nothing(dpl: Dpl, folder: Path, options: tuple[str, ...]) -> None:
    """Exit 1, the output that differs, and every file as it was, if nothing may be taken back."""
    before = contents(folder)

    answer = dpl(*REWRITE, *options, "--all-or-nothing")

    assert answer.code == 1
    assert "NOT equivalent" in answer.out
    assert "Wrote" not in answer.out
    assert answer.err.splitlines() == [
        "dpl: the result is not equivalent to the original",
        "dpl: nothing was written",
    ]
    assert contents(folder) == before


@pytest.mark.usefixtures("broken")
def test_keep_failed_keeps_the_result_beside(dpl: Dpl, folder: Path) -> None:
    """As OUTPUT.failed.onnx, which is named."""
    answer = dpl(*REWRITE, *OUT, "--keep-failed", "--all-or-nothing")

    assert answer.code == 1
    assert answer.err.splitlines()[-1] == "dpl: kept as out.failed.onnx"
    assert sorted(contents(folder)) == ["m.onnx", "out.failed.onnx", "rules.yaml"]
    assert ops(folder / "out.failed.onnx") == ["Mul", "Abs", "Exp"]


@pytest.mark.usefixtures("broken")
def test_no_verify_writes_it_and_says_so(dpl: Dpl, folder: Path) -> None:
    """Whoever wants no check gets none."""
    answer = dpl(*REWRITE, *OUT, "--no-verify")

    assert answer.code == 0
    assert "Not verified, as asked." in answer.out
    assert ops(folder / "out.onnx") == ["Mul", "Abs", "Exp"]


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("keep", [False, True])
def test_verify_each_names_the_rule_that_breaks_the_model(
    dpl: Dpl, folder: Path, *, keep: bool
) -> None:
    """The first turn after which the numbers differ, with what was done in it."""
    before = contents(folder)

    answer = dpl(*REWRITE, *OUT, "--verify-each", *["--keep-failed"][: int(keep)])

    assert answer.code == 1
    assert "NOT equivalent" in answer.out
    reason = "the result is not equivalent to the original"
    assert answer.err.splitlines() == [
        f"dpl: the rule wrong breaks the model in round 1: {reason}",
        "dpl:   2. replaced Neg 'n' by Abs 'n/Abs'",
        f"dpl: {'kept as out.failed.onnx' if keep else 'nothing was written'}",
    ]
    assert contents(folder).keys() == before.keys() | ({"out.failed.onnx"} if keep else set())


def test_verify_each_sees_a_turn_that_a_limit_cuts_short(
    dpl: Dpl, save: Save, rewrites: Rewrites
) -> None:
    """The last turn counts, too."""
    rewrites(WRONG)
    save("g (float[2] x) => (float[2] y) { [m] t = Neg (x) u = Exp (t) [n] y = Neg (u) }")

    answer = dpl(*REWRITE, *OUT, "--verify-each", "--limit", "1")

    assert answer.code == 1
    assert "dpl:   1. replaced Neg 'n' by Abs 'n/Abs'" in answer.err
    assert "2." not in answer.err


def test_verify_each_names_what_onnx_checker_refuses(
    dpl: Dpl, save: Save, rewrites: Rewrites
) -> None:
    """A result that is no valid model is the rule's fault, too."""
    rewrites(TO_MUL, "{name: untyped, pattern: 'Neg(x)', replacement: 'Transpose(x, perm=[0, 1])'}")
    save(TWICE.replace("y = Add (s, s)", "y = Neg (s)"))

    answer = dpl(*REWRITE, *OUT, "--verify-each")

    assert answer.code == 1
    first = "dpl: the rule untyped breaks the model in round 1: onnx.checker refuses the result: "
    assert answer.err.startswith(first)


def test_what_onnx_checker_says_is_cut_to_what_tells(
    dpl: Dpl, save: Save, rewrites: Rewrites
) -> None:
    """The first node that is wrong, and what to do; not what follows from it at all others."""
    rewrites("{name: untyped, pattern: 'Neg(x)', replacement: 'Transpose(x, perm=[0, 1])'}")
    chain = " ".join(f"v{k + 1} = Relu (v{k})" for k in range(30))
    save(f"g (float[2] x) => (float[2] y) {{ [n] v0 = Neg (x) {chain} y = Relu (v30) }}")

    answer = dpl(*REWRITE, *OUT, "--all-or-nothing")

    assert answer.code == 1
    said = next(line for line in answer.err.splitlines() if "onnx.checker" in line)
    assert "Transpose 'n" in said
    assert "dpl bisect" in said
    assert "Error" not in said
    assert "Relu" not in said
    assert len(said) < 250


@pytest.mark.usefixtures("twice")
def test_verify_each_of_right_rules_writes_the_model(dpl: Dpl, folder: Path) -> None:
    """The last check is the verdict; the model is not checked once more."""
    answer = dpl(*REWRITE, *OUT, "--verify-each", "-v")

    assert answer.code == 0
    assert "Equivalent in onnxruntime" in answer.out
    assert answer.err.count("checking the result with onnx.checker") == 1
    assert ops(folder / "out.onnx") == ["Mul", "Mul"]


def test_rules_without_an_end_are_named(
    dpl: Dpl, folder: Path, save: Save, rewrites: Rewrites
) -> None:
    """Exit 2: nothing can be written that would be the result."""
    rewrites(THERE, BACK)
    save(TWICE)
    before = contents(folder)

    answer = dpl(*REWRITE, *OUT, "--plan", "plan.yaml")

    assert answer.code == 2
    assert "there -> back -> there undo each other" in answer.message
    assert "once: true" in answer.hint
    assert contents(folder) == before


@pytest.mark.usefixtures("twice")
@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["run", "dry-run"])
def test_an_unmet_expectation_is_no(dpl: Dpl, folder: Path, dry: tuple[str, ...]) -> None:
    """Exit 1 also where nothing is to be written: a dry run answers the same question."""
    before = contents(folder)

    answer = dpl(*REWRITE, *OUT, *dry, "--expect", "to_mul>=3", "--expect", "never==0")

    assert answer.code == 1
    assert answer.err.splitlines()[0] == "dpl: expected to_mul>=3, found 2"
    assert contents(folder) == before


def test_what_onnxruntime_does_not_run_is_left_out_of_the_check(
    dpl: Dpl, folder: Path, save: Save, rewrites: Rewrites
) -> None:
    """The rest is judged, and the file is written; a warning names the node."""
    rewrites(TO_MUL)
    save(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17, "own": 1]> '
            "g (float[2] x) => (float[2] y) { s = Add (x, x) y = own.Secret (s) }"
        )
    )

    answer = dpl(*REWRITE, *OUT)

    assert answer.code == 0
    assert "warning: onnxruntime does not run Secret 'y'" in answer.out
    assert ops(folder / "out.onnx") == ["Mul", "Secret"]


# -- growth ----------------------------------------------------------------------------------------

COPY = """{name: copy, once: true, pattern: 'Mul(x, const(w))',
    replacement: 'Mul(x, const(w.value * 1.0))'}"""


def with_weight(size: int) -> onnx.ModelProto:
    """Return a model with one weight of so many numbers, read twice: a copy makes it grow."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> '
        f"g (float[{size}] x) => (float[{size}] y, float[{size}] z)"
        "{ y = Mul (x, w) z = Add (x, w) }"
    )
    weight = np.linspace(1, 2, size, dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


@pytest.mark.parametrize(
    ("size", "options", "code"),
    [
        (10_000, (), 1),
        (10_000, ("--max-growth", "50"), 1),
        (10_000, ("--max-growth", "101"), 0),
        (10_000, ("--max-growth", "101%"), 0),
        (2_000, (), 0),
        (2_000, ("--max-growth", "5"), 1),
        (10_000, ("--dry-run",), 1),
    ],
    ids=["default", "50", "101", "101%", "small", "small-5", "dry-run"],
)
def test_growth_is_limited(  # noqa: PLR0913, PLR0917  # fixtures
    dpl: Dpl,
    folder: Path,
    save: Save,
    rewrites: Rewrites,
    size: int,
    options: tuple[str, ...],
    code: int,
) -> None:
    """5 percent and some by default, and exactly what is said otherwise."""
    rewrites(COPY)
    save(with_weight(size))

    answer = dpl(*REWRITE, *OUT, *options)

    assert answer.code == code, answer.err
    assert ("--max-growth 100 allows it" in answer.err) == (code == 1), answer.err
    assert (folder / "out.onnx").exists() == (code == 0)


def test_what_new_nodes_say_of_themselves_is_no_growth(dpl: Dpl, folder: Path, save: Save) -> None:
    """Of small nodes the names and rules that the new ones state are a large share."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2, 4] x0) => (float[2, 4] x1000)'
        "<float[4, 4] w, float[4] b> { }"
    )
    del proto.graph.initializer[:]
    for name, shape in (("w", (4, 4)), ("b", (4,))):
        proto.graph.initializer.append(numpy_helper.from_array(np.full(shape, 0.1, "f4"), name))
    for block in range(1000):
        product, bias = f"m{block}", f"x{block + 1}"
        node = onnx.helper.make_node("MatMul", [f"x{block}", "w"], [product], f"mul{block}")
        proto.graph.node.append(node)
        node = onnx.helper.make_node("Add", [product, "b"], [bias], f"add{block}")
        proto.graph.node.append(node)
    model = save(proto)

    answer = dpl("rewrite", model, "-p", "prepare", *OUT, "--no-verify")
    strict = dpl("rewrite", model, "-p", "prepare", "-o", "b.onnx", "--no-verify", "--max-growth=5")

    assert answer.code == 0, answer.err
    assert set(ops(folder / "out.onnx")) == {"Gemm"}
    assert (folder / "out.onnx").stat().st_size > 1.2 * model.stat().st_size
    assert (strict.code, (folder / "b.onnx").exists()) == (1, False)


def test_folding_makes_no_model_of_ir_version_3_grow(dpl: Dpl, folder: Path, save: Save) -> None:
    """There all weights are inputs. The result is of version 4, and has the folded ones alone."""
    proto = onnx.parser.parse_model(
        '<ir_version: 3, opset_import: ["": 9]> g (float[1, 64, 4, 4] x, float[64, 64, 3, 3] w, '
        "float[64] s, float[64] b, float[64] m, float[64] v) => (float[1, 64, 4, 4] y) "
        "{ c = Conv <pads = [1, 1, 1, 1]> (x, w) y = BatchNormalization (c, s, b, m, v) }"
    )
    draw = np.random.default_rng(0).uniform
    for info in list(proto.graph.input)[1:]:
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        weight = draw(0.5, 1.0, shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(weight, info.name))
    model = save(proto)

    answer = dpl("rewrite", model, "-p", "prepare", *OUT)

    assert answer.code == 0, answer.err
    result = onnx.load(folder / "out.onnx")
    assert (result.ir_version, ops(folder / "out.onnx")) == (4, ["Conv"])
    assert [info.name for info in result.graph.input] == ["x"]
    assert (folder / "out.onnx").stat().st_size <= model.stat().st_size


def test_growth_counts_external_data(
    dpl: Dpl, folder: Path, save: Save, rewrites: Rewrites
) -> None:
    """Beside a large file of weights a small constant is nothing."""
    rewrites("{name: r, pattern: 'Add(x, x)', replacement: 'Mul(x, 2.0)'}")
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> '
        "g (float[1000] x) => (float[1000] y) { s = Add (x, x) y = Mul (s, w) }"
    )
    weight = proto.graph.initializer.add(name="w", data_type=1, dims=[1000], data_location=1)
    weight.external_data.add(key="location", value="w.bin")
    (folder / "w.bin").write_bytes(np.ones(1000, dtype=np.float32).tobytes())
    model = save(proto)
    (folder / "sub").mkdir()

    answer = dpl("rewrite", model, "-p", "rules.yaml", "-o", "sub/out.onnx", "--max-growth", "5")

    assert answer.code == 0, answer.err
    total = model.stat().st_size + 4000
    assert f"bytes       {total:,} " in answer.out
    assert (folder / "sub" / "w.bin").read_bytes() == (folder / "w.bin").read_bytes()
    assert ops(folder / "sub" / "out.onnx") == ["Mul", "Mul"]


# -- trace -----------------------------------------------------------------------------------------

TRACE = """\
round 1
  to_mul: 2 candidates, applied 2 times
    1. replaced Add 'b' by Mul 'b/Mul'
    2. replaced Add 'a' by Mul 'a/Mul'

"""


@pytest.mark.usefixtures("twice")
def test_trace_is_a_tree_before_the_tables(dpl: Dpl) -> None:
    """Rounds, the rules with something to look at, what was done in order."""
    traced, plain = dpl(*REWRITE, *OUT, "--trace"), dpl(*REWRITE, *OUT)

    assert (traced.code, traced.err) == (0, "")
    assert traced.out == TRACE + plain.out
    assert dpl(*REWRITE, *OUT, "--trace", "--quiet").out == ""


def test_trace_tells_refusals_and_scopes(dpl: Dpl, save: Save, rewrites: Rewrites) -> None:
    """A refusal has its stage and reason; what is not in the main graph says where it is."""
    rewrites("{name: r, pattern: 'Abs(Neg(x))', replacement: 'Abs(x)', escape: refuse}")
    save(
        """g (bool c, float[2] x) => (float[2] y, float[2] n) {
            n = Neg (x)  a = Abs (n)
            [i] b = If (c) <
                then_branch = t () => (float[2] o) { p = Neg (x) o = Abs (p) },
                else_branch = e () => (float[2] o) { o = Identity (x) }>
            y = Add (a, b) }"""
    )

    answer = dpl(*REWRITE, *OUT, "--trace")

    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[:2] == ["round 1", "  r: 2 candidates, applied once"]
    assert lines[2].startswith("    refused at Abs 'a' by escape: ")
    assert lines[3] == "    1. replaced Neg 'p', Abs 'o' by Abs 'o' in main/i.then_branch"


@pytest.mark.parametrize("options", [("--trace",), ("--trace-json", "trace.json")])
def test_a_trace_is_there_when_rules_have_no_end(
    dpl: Dpl, folder: Path, save: Save, rewrites: Rewrites, options: tuple[str, ...]
) -> None:
    """That is when it is needed most."""
    rewrites(THERE, BACK)
    save(TWICE)

    answer = dpl(*REWRITE, *OUT, *options)

    assert answer.code == 2
    told = answer.out
    if "--trace-json" in options:
        assert told == ""
        told = (folder / "trace.json").read_text()
    assert "there" in told
    assert "back" in told


@pytest.mark.usefixtures("twice")
def test_a_usage_error_leaves_no_trace(dpl: Dpl, folder: Path) -> None:
    """Where nothing was tried there is nothing to tell."""
    answer = dpl(*REWRITE, *OUT, "--trace", "--trace-json", "t.json", "--only", "nothing")

    assert (answer.code, answer.out) == (2, "")
    assert not (folder / "t.json").exists()


@pytest.mark.usefixtures("twice")
def test_trace_json_has_these_keys(dpl: Dpl) -> None:
    """dpl.trace/1, on standard output instead of the tables."""
    answer = dpl(*REWRITE, *OUT, "--trace-json", "-")

    assert (answer.code, answer.err) == (0, "")
    trace = json.loads(answer.out)
    assert list(trace) == ["schema", "dpl_version", "model", "turns"]
    assert (trace["schema"], trace["model"]) == ("dpl.trace/1", "m.onnx")
    (turn,) = trace["turns"]
    assert {key: turn[key] for key in ("round", "rule", "candidates", "applied")} == {
        "round": 1,
        "rule": "to_mul",
        "candidates": 2,
        "applied": 2,
    }
    event = turn["events"][0]
    assert list(event) == ["event", "id", "rule", "scope", "root", "removed", "added"]
    assert (event["event"], event["id"], event["scope"]) == ("applied", 1, "main")
    assert event["root"] == {"op_type": "Add", "domain": "", "name": "b", "output": "y"}


# -- JSON, dry runs, what is printed ---------------------------------------------------------------

NODE = ["op_type", "domain", "name", "output"]
KEYS = [
    *("schema", "dpl_version", "model", "counts", "unmet", "applications"),
    *("rounds", "refused", "missing", "broken"),
    *("nodes", "bytes", "growth", "objection", "verification"),
]


@pytest.mark.usefixtures("twice")
def test_the_json_has_the_keys_of_the_contract(dpl: Dpl, folder: Path) -> None:
    """dpl.rewrite/1: counts, every application with its nodes, rounds, refusals, verification."""
    answer = dpl(*REWRITE, *OUT, "--json", "-")

    assert (answer.code, answer.err) == (0, "")
    found: dict[str, Any] = json.loads(answer.out)
    assert list(found) == KEYS
    assert found["schema"] == "dpl.rewrite/1"
    assert (found["counts"], found["rounds"]) == ({"to_mul": 2}, 1)
    first, second = found["applications"]
    assert list(first) == ["id", "rule", "scope", "root", "removed", "added"]
    assert (first["id"], second["id"], first["rule"]) == (1, 2, "to_mul")
    assert first["root"] == {"op_type": "Add", "domain": "", "name": "b", "output": "y"}
    assert first["removed"] == [first["root"]]
    assert [list(node) for node in first["added"]] == [NODE]
    assert found["nodes"] == {
        "before": 2,
        "after": 2,
        "by_op": {"Add": {"before": 2, "after": 0}, "Mul": {"before": 0, "after": 2}},
    }
    assert found["bytes"]["after"] == (folder / "out.onnx").stat().st_size
    assert found["verification"]["equivalent"]
    assert (found["broken"], found["missing"], found["refused"]) == (None, [], [])


@pytest.mark.usefixtures("broken")
def test_the_json_names_what_broke_the_model(dpl: Dpl, folder: Path) -> None:
    """With --verify-each: the rule, the round, and the numbers of its applications."""
    answer = dpl(*REWRITE, *OUT, "--verify-each", "--json", "r.json", "--quiet")

    assert (answer.code, answer.out) == (1, "")
    found = json.loads((folder / "r.json").read_text())
    assert found["broken"] == {
        "rule": "wrong",
        "round": 1,
        "applications": [2],
        "reason": "the result is not equivalent to the original",
    }
    assert not found["verification"]["equivalent"]


@pytest.mark.usefixtures("broken")
def test_a_dry_run_writes_and_verifies_nothing(dpl: Dpl, folder: Path) -> None:
    """It says what would be done, how large the result would be, and that it did not look."""
    before = contents(folder)

    answer = dpl(*REWRITE, *OUT, "--dry-run")
    real = dpl(*REWRITE, *OUT, "--no-verify")

    assert (answer.code, answer.err) == (0, "")
    assert "Nothing was verified or written, as asked." in answer.out
    assert {name: data for name, data in contents(folder).items() if name != "out.onnx"} == before
    shown, done = (
        text.partition("\n1 other rule")[2].splitlines()[:9] for text in (answer.out, real.out)
    )
    assert shown == done


def test_a_dry_run_needs_no_place_to_write_to(dpl: Dpl, twice: Path) -> None:
    """The output is not looked at."""
    answer = dpl("rewrite", twice, "-p", "rules.yaml", "--dry-run", "-o", "gone/out.onnx")

    assert (answer.code, answer.err) == (0, "")


@pytest.mark.usefixtures("twice")
def test_verbose_lists_every_application(dpl: Dpl) -> None:
    """Rule, scope, what was taken out and what was put in; and progress on stderr."""
    answer = dpl(*REWRITE, *OUT, "--verbose")

    assert "1  to_mul  main   Add 'b'  Mul 'b/Mul'" in answer.out
    assert "2  to_mul  main   Add 'a'  Mul 'a/Mul'" in answer.out
    assert answer.err.splitlines()[:3] == ["dpl: reading m.onnx", "dpl: rewriting", "dpl: writing"]


@pytest.mark.usefixtures("twice")
def test_quiet_prints_nothing(dpl: Dpl) -> None:
    """Success has no words."""
    answer = dpl(*REWRITE, *OUT, "--quiet")

    assert (answer.code, answer.out, answer.err) == (0, "", "")


# -- raising the opset -----------------------------------------------------------------------------

CLIP = """<ir_version: 6, opset_import: ["": 10]> g (float[2] x) => (float[2] y) {
    [c] s = Clip <min = -1.0, max = 1.0> (x) [r] t = Relu (s) [q] y = Relu (t) }"""
NEW = "{name: new, opsets: [13], pattern: Relu(Relu(x)), replacement: Relu(x)}"


@pytest.fixture
def old(save: Save, rewrites: Rewrites) -> Path:
    """Return a model of opset 10, and a catalogue with a rule for opset 13 and later."""
    rewrites(NEW)
    return save(onnx.parser.parse_model(CLIP))


def test_the_opset_is_raised_before_anything_is_matched(dpl: Dpl, folder: Path, old: Path) -> None:
    """A rule for later opsets is applied; what comes out is compared with the model as it was."""
    before = dpl(*REWRITE, *OUT)
    assert (before.code, (folder / "out.onnx").read_bytes()) == (0, old.read_bytes())

    answer = dpl(*REWRITE, *OUT, "--opset", "13", "--verify-each", "--expect", "new==1")

    assert (answer.code, answer.err) == (0, "")
    assert "note: m.onnx: raised from opset 10 to 13; adapted: Clip" in answer.out
    assert "Relu            2      1" in answer.out
    assert "Equivalent in onnxruntime" in answer.out
    written = onnx.load(folder / "out.onnx")
    assert [node.op_type for node in written.graph.node] == ["Clip", "Relu"]
    assert written.opset_import[0].version == 13


@pytest.mark.usefixtures("old")
def test_a_model_that_is_raised_only_is_checked_and_written(dpl: Dpl, folder: Path) -> None:
    """It is another model, though no rule has matched."""
    answer = dpl(*REWRITE, *OUT, "--opset", "12")

    assert (answer.code, answer.err) == (0, "")
    assert "all nodes       3      3" in answer.out
    assert "Equivalent in onnxruntime" in answer.out
    assert answer.out.endswith("Wrote out.onnx.\n")
    assert onnx.load(folder / "out.onnx").opset_import[0].version == 12


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize(
    ("opset", "message"),
    [("9", "cannot be lowered to 9"), ("999", "there is no opset 999"), ("0", "0"), ("x", "'x'")],
)
def test_an_opset_that_cannot_be_is_refused(
    dpl: Dpl, folder: Path, opset: str, message: str
) -> None:
    """Exit 2, nothing is written."""
    answer = dpl(*REWRITE, *OUT, "--opset", opset)

    assert answer.code == 2
    assert message in answer.message
    assert not (folder / "out.onnx").exists()


@pytest.mark.usefixtures("old")
def test_verify_each_tells_raising_from_rules(
    dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is broken before any rule has had a turn is no rule's fault."""
    refuse = "dplcli.pipeline.writing.check_model"
    monkeypatch.setattr(refuse, lambda path, **_rest: "" if path.name == "m.onnx" else "nonsense")

    answer = dpl(*REWRITE, *OUT, "--opset", "13", "--verify-each")

    assert answer.code == 1
    reason = "onnx.checker refuses the result: nonsense"
    assert answer.err.splitlines() == [
        f"dpl: raising the opset breaks the model: {reason}",
        "dpl: nothing was written",
    ]
    assert not (folder / "out.onnx").exists()


# -- files that are not to be replaced -------------------------------------------------------------


@pytest.mark.usefixtures("twice")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "m.onnx"), "m.onnx: the output is the input"),
        (("-o", "rules.yaml"), "rules.yaml: is a catalogue that this run reads"),
        (("-o", "other.yaml"), "other.yaml: is a catalogue that this run reads"),
        (("-o", "."), "is a directory"),
        (("-o", "gone/out.onnx"), "there is no folder 'gone'"),
        (("--plan", "m.onnx"), "--plan m.onnx: is another file of this command"),
        (("--plan", "m.rewritten.onnx"), "--plan m.rewritten.onnx: is another file"),
        (("--plan", "rules.yaml"), "--plan rules.yaml: exists and is no plan"),
        (("--plan", "other.yaml"), "--plan other.yaml: exists and is no plan"),
        (("--plan", "gone/p.yaml"), "--plan gone/p.yaml: there is no folder 'gone'"),
        (("--plan", "."), "is not a file"),
        (("--plan", ""), "is not a file"),
        (("--json", "p.yaml", "--plan", "p.yaml"), "--json p.yaml: is another file"),
        (("--trace-json", "rules.yaml"), "--trace-json rules.yaml: is another file"),
        (("--trace-json", "m.onnx"), "--trace-json m.onnx: is another file"),
        (("--trace-json", "gone/t.json"), "--trace-json gone/t.json: cannot be written"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_no_file_of_the_run_is_replaced(
    dpl: Dpl, folder: Path, rewrites: Rewrites, options: tuple[str, ...], message: str
) -> None:
    """Neither the model nor a catalogue, included or not, nor anything that is no report."""
    rewrites(NEVER, name="other.yaml")
    (folder / "rules.yaml").write_text(
        f"dpl: 1\ninclude: [other.yaml]\nrewrites:\n  - {TO_MUL}\n", encoding="utf-8"
    )
    before = contents(folder)

    answer = dpl(*REWRITE, *options)

    assert answer.code == 2
    assert message in answer.message
    assert contents(folder) == before


# -- other models ----------------------------------------------------------------------------------

FUNCTIONS = """<ir_version: 8, opset_import: ["": 17, "own": 1]>
g (bool c, float[2] x) => (float[2] y) {
    a = own.double (x)
    b = If (c) <
        then_branch = t () => (float[2] o) { o = Add (a, a) },
        else_branch = e () => (float[2] o) { o = Neg (a) }>
    y = Add (b, b) }
<domain: "own", opset_import: ["": 17]> double (v) => (w) { w = Add (v, v) }"""


def test_bodies_and_functions_are_rewritten(
    dpl: Dpl, folder: Path, save: Save, rewrites: Rewrites
) -> None:
    """Each graph by itself; operators are counted in all of them."""
    rewrites("{name: r, pattern: 'Add(x, x)', replacement: 'Sum(x, x)'}")
    save(onnx.parser.parse_model(FUNCTIONS))

    answer = dpl(*REWRITE, *OUT, "--verbose", "--expect", "r==3")

    assert answer.code == 0, answer.out
    for scope in ("main", "main/b.then_branch", "function own::double"):
        assert f"r     {scope} " in answer.out
    assert "Add             3      0" in answer.out
    model = onnx.load(folder / "out.onnx")
    assert [node.op_type for node in model.functions[0].node] == ["Sum"]
    assert Counter(ops(folder / "out.onnx")) == {"double": 1, "If": 1, "Sum": 1}


def test_a_result_may_be_empty(dpl: Dpl, folder: Path, save: Save, rewrites: Rewrites) -> None:
    """What only passes its input on becomes one node that does, for a graph has its outputs."""
    rewrites("{name: r, pattern: 'Neg(Neg(x))', replacement: x}")
    save("g (float[2] x) => (float[2] y) { s = Neg (x) y = Neg (s) }")

    assert dpl(*REWRITE, *OUT).code == 0
    assert ops(folder / "out.onnx") == ["Identity"]


def test_missing_external_data_is_noticed(
    dpl: Dpl, folder: Path, save: Save, rewrites: Rewrites
) -> None:
    """Before any work: exit 2."""
    rewrites(TO_MUL)
    model = with_weight(10)
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="gone.bin")
    save(model)

    answer = dpl(*REWRITE, *OUT)

    assert answer.code == 2
    assert "'gone.bin' is missing" in answer.message
    assert not (folder / "out.onnx").exists()


FUSED_CONV = """{name: r, pattern: "c = Conv(x, w, b, **attrs)\\nRelu(c)",
    replacement: 'com.microsoft.FusedConv(x, w, b, activation="Relu", **attrs)'}"""


def test_a_real_model_keeps_what_it_computes(dpl: Dpl, folder: Path, rewrites: Rewrites) -> None:
    """A fused convolution of onnxruntime's own takes the place of two pairs."""
    rewrites(FUSED_CONV)
    shutil.copy(SAMPLES / "residual_block.onnx", folder / "m.onnx")

    answer = dpl(*REWRITE, *OUT, "--expect", "r==2")

    assert answer.code == 0, answer.err
    counts = Counter(ops(folder / "out.onnx"))
    assert counts == {"FusedConv": 2, "Conv": 1, "Add": 1, "MaxPool": 1}


def test_a_constant_is_in_no_sum_of_nodes(dpl: Dpl, save: Save) -> None:
    """It holds data: so a net has as many nodes for a rewrite as for a partition."""
    save(
        "g (float[2] x) => (float[2] y) "
        "{ c = Constant <value_float = 2.0> () a = Mul (x, c) y = Relu (a) }"
    )
    rewritten = dpl("rewrite", "m.onnx", "-p", "prepare", "-o", "r.onnx", "--json", "-")
    outlined = dpl("partition", "m.onnx", "-p", "Relu(Mul(x, c))", "-o", "p.onnx")

    counts = json.loads(rewritten.out)["nodes"]
    assert (counts["before"], counts["after"]) == (2, 2)
    assert "the main graph went from 2 to 1 nodes" in outlined.out
    assert "all but Constant" in dpl("rewrite", "m.onnx", "-p", "prepare", "-o", "s.onnx").out
