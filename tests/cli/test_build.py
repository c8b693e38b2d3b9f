"""``dpl build`` and ``dpl init``: a pipeline file, what it makes, and what CI is told."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree as ET

import onnx
import pytest
from onnx import numpy_helper
from ruamel.yaml import YAML

from tests.cli.support import LISTENING, ROOT, SAMPLES, Dpl, contents

NETS = ("residual_block", "resnet18_bn")
PLAIN = """\
models: [models]
targets: [dnnl]
steps:
  - partition: {}
verify: false
"""

Write = Callable[..., Path]


@pytest.fixture
def project(folder: Path) -> Write:
    """Return a function that writes the pipeline file of a folder with two nets."""
    (folder / "models").mkdir()
    for name in NETS:
        shutil.copy(SAMPLES / f"{name}.onnx", folder / "models")

    def write(text: str, name: str = "dpl.yaml") -> Path:
        (folder / name).write_text(text, encoding="utf-8")
        return folder / name

    return write


def states(out: str) -> dict[str, str]:
    """Return what became of the file of each model."""
    lines = [line.split() for line in out.partition("\n\n")[0].splitlines()]
    at = lines[0].index("file") - len(lines[0])
    return {Path(words[0]).stem: words[at] for words in lines[1:]}


@pytest.mark.long
def test_build_writes_what_the_steps_make(dpl: Dpl, project: Write) -> None:
    """The bytes are those of the commands one after the other; the second time nothing is done."""
    project(
        "models: [models]\noutput: out\nsteps:\n  - rewrite: {patterns: prepare}\n"
        "  - partition: {target: dnnl, merge: true}\nverify: {seed: 0}\n"
    )

    first = dpl("build")
    assert (first.code, first.err) == (0, "")
    assert states(first.out) == dict.fromkeys(NETS, "new")
    written = contents(Path("out"))
    for name in NETS:
        dpl("rewrite", f"models/{name}.onnx", "-p", "prepare", "-o", f"{name}.onnx", "--no-verify")
        dpl("partition", f"{name}.onnx", "--target", "dnnl", "--merge", "-o", "b.onnx", "-q")
        assert Path("b.onnx").read_bytes() == written[f"{name}.onnx"]

    second = dpl("build")
    assert (second.code, second.err) == (0, "")
    assert states(second.out) == dict.fromkeys(NETS, "unchanged")


@pytest.mark.long
def test_only_what_changed_is_done_again(dpl: Dpl, project: Write, folder: Path) -> None:
    """A model, a result or the file."""
    project(PLAIN)
    dpl("build")
    untouched = (folder / "built" / "residual_block.onnx").stat().st_mtime_ns

    shutil.copy(SAMPLES / "super_resolution.onnx", folder / "models" / "resnet18_bn.onnx")
    assert states(dpl("build").out) == {"residual_block": "unchanged", "resnet18_bn": "changed"}

    (folder / "built" / "resnet18_bn.onnx").unlink()
    assert states(dpl("build").out) == {"residual_block": "unchanged", "resnet18_bn": "new"}
    assert (folder / "built" / "residual_block.onnx").stat().st_mtime_ns == untouched

    project(PLAIN.replace("{}", "{merge: true}"))
    assert states(dpl("build").out) == dict.fromkeys(NETS, "changed")


@pytest.mark.long
def test_inputs_from_a_function_are_what_it_is_made_of(dpl: Dpl, project: Write) -> None:
    """Other numbers, wherever they stand, are checked again: by a build, and by its check."""
    inputs = "verify: {inputs: 'feeds.py:make', allow-code: true, seed: 0}"
    project(PLAIN.replace("verify: false", inputs))
    code = "import helper\ndef make(seed): return helper.values()\n"
    Path("feeds.py").write_text(code)
    Path("helper.py").write_text("def values(): return {}\n")
    assert dpl("build").code == 0
    assert dpl("build", "--check").code == 0
    Path("helper.py").write_text("def values(): return {'nosuch': 1}\n")
    for words in (["build", "--check"], ["build"]):
        answer = dpl(*words)
        assert answer.code == 2
        assert "has no input 'nosuch' to feed" in answer.err


@pytest.mark.long
def test_check_writes_nothing_and_says_what_would_differ(
    dpl: Dpl, project: Write, folder: Path
) -> None:
    """Also where no build was made before, and where the result was edited by hand."""
    project(f"{PLAIN}reports: {{json: r.json}}\n")
    before = contents(folder)
    first = dpl("build", "--check")
    assert first.code == 1
    assert first.err.splitlines() == [
        "dpl: models/residual_block.onnx: built/residual_block.onnx: is missing",
        "dpl: models/resnet18_bn.onnx: built/resnet18_bn.onnx: is missing",
        "dpl: hint: dpl build writes what is missing or would differ",
    ]
    assert contents(folder) == before

    assert dpl("build").code == 0
    assert (folder / "r.json").is_file()
    assert dpl("build", "--check").code == 0

    (folder / "built" / "resnet18_bn.onnx").write_bytes(b"edited")
    before = contents(folder)
    answer = dpl("build", "--check")
    assert answer.code == 1
    assert answer.err.splitlines()[0].endswith("built/resnet18_bn.onnx: would differ")
    assert len(answer.err.splitlines()) == 2
    assert contents(folder) == before


def test_each_expectation_is_a_case(dpl: Dpl, project: Write) -> None:
    """Met or not, and also of a rule that does not match at all."""
    expect = "expect: [dnnl.conv2d_bn_relu>=9, dnnl.conv2d_clip>=1]"
    entry = f"models: [{{path: models/resnet18_bn.onnx, {expect}}}]"
    project(PLAIN.replace("models: [models]", entry))
    answer = dpl("build", "--junit", "r.xml")
    assert answer.code == 1
    assert "expected dnnl.conv2d_clip>=1, found 0" in answer.err
    cases = [
        (case.get("name", "").rpartition(": ")[2], case.find("failure") is not None)
        for case in ET.parse("r.xml").iter("testcase")  # noqa: S314  # ours
        if "expectations" in case.get("name", "")
    ]
    assert cases == [("dnnl.conv2d_bn_relu>=9", False), ("dnnl.conv2d_clip>=1", True)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("expect: [dnnl.conv2d_bn_relu>=10]", "expected dnnl.conv2d_bn_relu>=10, found 9"),
        ("budgets: {nodes: 24}", "it has 25 nodes, the budget is 24"),
        ("budgets: {size: 9 kB}", "bytes, the budget is 9,000"),
        ("budgets: {growth: 1 %}", "% larger, the budget is 1 %"),
        ("budgets: {coverage: 99 %}", "97 % of the nodes are covered, not 99 %"),
    ],
)
def test_a_limit_of_one_model_is_its_own(
    dpl: Dpl, project: Write, folder: Path, limit: str, message: str
) -> None:
    """The answer is no, nothing is written for it, and the others are; just kept is yes."""
    entry = f"models: [models, {{path: models/resnet18_bn.onnx, {limit}}}]"
    project(PLAIN.replace("models: [models]", entry))

    answer = dpl("build")

    assert answer.code == 1
    assert answer.err.startswith("dpl: models/resnet18_bn.onnx: ")
    assert message in answer.err
    assert answer.err.count("\n") == 1
    assert list(contents(folder / "built")) == ["residual_block.onnx"]

    kept = limit.replace("10", "9").replace("24", "25").replace("9 kB", "1 GB")
    kept = kept.replace("1 %", "900 %").replace("99 %", "90 %")
    project(PLAIN.replace("models: [models]", entry.replace(limit, kept)))
    assert dpl("build").code == 0


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("modles: [models]\nsteps: [{partition: {target: dnnl}}]\n", "dpl.yaml:1:1", "'models'"),
        (PLAIN.replace("{}", "{merg: true}"), "dpl.yaml:4:17: unknown option 'merg'", "'merge'"),
        (PLAIN.replace("{}", "{repeat: true}"), "unknown option 'repeat'", "a step of its own"),
        (PLAIN.replace("partition", "partitoin"), "unknown key 'partitoin'", "'partition'"),
        (PLAIN.replace("{}", "{merge: 3}"), "merge: expected true or false", ""),
        (
            PLAIN.replace("{}", "{mutants: many}"),
            "dpl.yaml:4:17: mutants: expected a whole number, not 'many'",
            "",
        ),
        (PLAIN.replace("{}", "{seed: [1, true]}"), "4:17: seed: expected texts or numbers", ""),
        (PLAIN.replace("{}", "{shape: n}"), "4:17: shape 'n': not a size", "write shape: batch=4"),
        (PLAIN.replace("{}", "{max-memory: -1}"), "max-memory: expected at least 0, not -1", ""),
        (PLAIN.replace("{}", "{math: fp8}"), "4:5: math: there is no 'fp8'", "fp32, bf16"),
        (PLAIN.replace("{}", "{prune: true}"), "4:5: prune is about the regions that merge", ""),
        (PLAIN.replace("{}", "{output: there.onnx}"), "unknown option 'output'", ""),
        (PLAIN.replace("verify: false", "verify: {sed: 1}"), "unknown option 'sed'", "'seed'"),
        (PLAIN.replace("targets: [dnnl]\n", ""), "partition: no rules are named", "targets"),
        (f"{PLAIN}expect: [conv>9]\nbudgets: {{size: big}}\n", "expected a size", ""),
        (f"{PLAIN}expect: [conv]\n", "'conv' is no expectation", ""),
        (PLAIN.replace("partition: {}", "run: [cp, a, b]"), "run needs {input} and {output}", ""),
        (PLAIN.replace("- partition: {}", "[]"), "steps", ""),
        ("- 1\n", "dpl.yaml: is not a pipeline file", "models"),
        ("models: [", "not valid YAML", ""),
    ],
)
def test_a_mistake_in_the_file_is_pointed_at(  # noqa: PLR0913, PLR0917  # the fixtures, and a case
    dpl: Dpl, project: Write, folder: Path, text: str, message: str, hint: str
) -> None:
    """Before anything is done; exit code 2."""
    project(text)
    before = contents(folder)

    answer = dpl("build")

    assert answer.code == 2
    assert "internal error" not in answer.err
    assert message in answer.err
    assert hint in answer.err
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("step", "verify", "expected"),
    [
        ("{shape: batch=4, rename: x=image}", "{seed: 0}", ["image", 4]),
        ("{patterns: prepare}", "{seed: 0, shape: batch=4}", ["x", "batch"]),
    ],
)
def test_a_step_changes_sizes_and_the_check_feeds_them(
    dpl: Dpl, project: Write, step: str, verify: str, expected: list[object]
) -> None:
    """What is said of the check changes no model."""
    project(f"models: [models/resnet18_bn.onnx]\nsteps:\n  - rewrite: {step}\nverify: {verify}\n")

    assert dpl("build").code == 0
    port = onnx.load(Path("built/resnet18_bn.onnx")).graph.input[0]
    dim = port.type.tensor_type.shape.dim[0]
    assert [port.name, dim.dim_param or dim.dim_value] == expected


def test_without_a_file_the_hint_says_how_to_get_one(dpl: Dpl, folder: Path) -> None:
    """Also beside a pyproject.toml that is about something else."""
    (folder / "pyproject.toml").write_text("[tool.other]\n")

    answer = dpl("build")

    assert answer.code == 2
    assert answer.message.startswith("there is no dpl.yaml here")
    assert answer.hint.startswith("dpl init writes")


def test_a_table_of_pyproject_says_the_same(dpl: Dpl, project: Write, folder: Path) -> None:
    """A typo is named by its key, as TOML has no lines."""
    text = '[tool.dpl]\nmodels = ["models"]\ntargets = ["dnnl"]\nverify = false\n'
    steps = "[[tool.dpl.steps]]\npartition = {}\n"
    project(text + steps, "pyproject.toml")
    assert dpl("build").code == 0
    assert len(contents(folder / "built")) == 2

    project(text + steps.replace("{}", "{merg = true}"), "pyproject.toml")
    answer = dpl("build")
    assert (answer.code, answer.hint) == (2, "did you mean 'merge'?")
    assert answer.message == (
        "pyproject.toml: tool.dpl.steps.0.partition.merg: unknown option 'merg'"
    )


def test_what_cannot_be_done_stops_no_other_model(dpl: Dpl, project: Write, folder: Path) -> None:
    """A broken model, one that is missing, and a folder without any."""
    (folder / "empty").mkdir()
    (folder / "models" / "broken.onnx").write_bytes(b"\x08\x08 no model")
    project(PLAIN.replace("[models]", "[models, empty, missing.onnx]"))

    answer = dpl("build")

    assert answer.code == 2
    assert answer.err.splitlines() == [
        f"dpl: error: models/broken.onnx: step 1, partition: {BROKEN}",
        "dpl: error: empty: no .onnx file is in this folder or below",
        "dpl: error: missing.onnx: step 1, partition: no such file",
    ]
    assert sorted(contents(folder / "built")) == [f"{name}.onnx" for name in NETS]


BROKEN = "is not an ONNX model, or was cut off"
COPY = "import shutil, sys; shutil.copy(*sys.argv[1:])"
SPOIL = """
import sys
import onnx
from onnx import numpy_helper
model = onnx.load(sys.argv[1])
for tensor in model.graph.initializer:
    array = numpy_helper.to_array(tensor)
    if array.dtype.kind == "f":
        tensor.CopyFrom(numpy_helper.from_array((array * 2).astype(array.dtype), tensor.name))
onnx.save(model, sys.argv[2])
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        (COPY, 0, ""),
        (SPOIL, 1, "step 1, run: "),
        ("import sys; sys.exit('it is broken')", 2, "exit code 1: it is broken"),
        ("", 2, "it wrote no {output}"),
    ],
    ids=["right", "wrong", "fails", "writes-nothing"],
)
def test_what_another_program_makes_is_verified(  # noqa: PLR0913, PLR0917  # the fixtures, and a case
    dpl: Dpl, project: Write, folder: Path, code: str, status: int, message: str
) -> None:
    """As what dpl makes is."""
    step = json.dumps([sys.executable, "-c", code, "{input}", "{output}"])
    project(f"models: [models/residual_block.onnx]\nsteps: [{{run: {step}}}]\n")

    answer = dpl("build")

    assert answer.code == status, answer.err
    assert message in answer.err
    assert (folder / "built" / "residual_block.onnx").exists() == (status == 0)


SLOW = """\
models: [models]
steps:
  - run: [sh, -c, 'case $0 in *resnet*) sleep %s & wait;; esac; cp $0 $1', "{input}", "{output}"]
verify: false
reports: {json: report.json}
"""


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_ends_what_it_started_and_reports(
    project: Write, folder: Path, number: int
) -> None:
    """What is done is in the report; nothing but one line is said, and no program lives on."""
    mark = f"1000.{os.getpid()}{number}"
    project(SLOW % mark)
    with subprocess.Popen(  # noqa: S603  # our own program
        [sys.executable, "-c", LISTENING, "build", "--jobs", "1"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            late = time.monotonic() + 60
            while not runs(mark):
                assert time.monotonic() < late
                time.sleep(0.05)
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()

    assert process.returncode == (130 if number == signal.SIGINT else 2)
    stopped = "interrupted; no file is left half-written"
    assert err == f"dpl: error: models/resnet18_bn.onnx: {stopped}\n"
    assert out.endswith("2 models: 1 ok, 1 could not be done.\n")
    answers = json.loads((folder / "report.json").read_text())["answers"]
    assert [each["status"] for each in answers] == ["ok", "error"]
    assert list(contents(folder / "built")) == ["residual_block.onnx"]
    assert not runs(mark)


def runs(mark: str) -> bool:
    """Tell whether a program with this argument runs."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            if mark.encode() in path.read_bytes().split(b"\0"):
                return True
    return False


@pytest.mark.long
def test_external_data_comes_along(dpl: Dpl, project: Write, folder: Path) -> None:
    """New weights reach the result; two models that share a file must agree on it."""
    path = folder / "models" / "residual_block.onnx"
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    onnx.save(proto, path, save_as_external_data=True, location="w", size_threshold=0)
    project(PLAIN)
    assert dpl("build").code == 0
    weights = folder / "models" / "w"
    assert (folder / "built" / "w").read_bytes() == weights.read_bytes()

    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    assert dpl("build", "--check").code == 1
    assert states(dpl("build").out)["residual_block"] == "changed"
    assert (folder / "built" / "w").read_bytes() == weights.read_bytes()


@pytest.mark.long
def test_init_writes_a_file_that_holds(dpl: Dpl, project: Write, folder: Path) -> None:
    """It builds, what it expects is met, and one match less is noticed; nothing is overwritten."""
    (folder / "models" / "broken.onnx").write_bytes(b"\x08\x08 no model")
    for name in ("resnet18_bn.partitioned.onnx", "resnet18_bn.rewritten.failed.onnx"):
        shutil.copy(SAMPLES / "resnet18_bn.onnx", folder / "models" / name)
    (folder / "other").mkdir()
    shutil.copy(SAMPLES / "light_squeezenet.onnx", folder / "other" / "resnet18_bn.onnx")
    answer = dpl("init")
    assert answer.code == 0
    assert answer.err.startswith("dpl: left out: models/broken.onnx: is not an ONNX model")
    assert answer.out.startswith("Wrote dpl.yaml: 3 models, ")
    written = (folder / "dpl.yaml").read_text()
    assert "broken.onnx" in written
    assert "partitioned" not in written
    assert '- "dnnl.conv2d_bn_relu>=9"' in written
    built = dpl("build")
    assert (built.code, built.err) == (0, "")
    places = ["residual_block", "resnet18_bn"]
    names = [*(f"models/{name}.onnx" for name in places), "other/resnet18_bn.onnx"]
    assert sorted(contents(folder / "built")) == names
    assert dpl("build", "--check").code == 0

    project(written.replace("conv2d_bn_relu>=9", "conv2d_bn_relu>=10"))
    assert dpl("build", "--check").code == 1

    again = dpl("init")
    assert again.code == 2
    assert again.message == "dpl.yaml: exists, so it is kept"


def test_the_schema_knows_every_option(dpl: Dpl) -> None:
    """Of steps and of the check; of what is said once for all, it knows none."""
    schema = json.loads(dpl("schema", "pipeline").out)

    steps = schema["$defs"]["StepEntry"]["properties"]
    options = steps["partition"]["anyOf"][0]["properties"]
    assert {"target", "patterns", "merge", "seed", "no-verify", "shape"} <= options.keys()
    assert not {"output", "json", "jobs", "html", "in-place"} & options.keys()
    assert options["merge"]["type"] == "boolean"
    assert "seed" in schema["properties"]["verify"]["anyOf"][1]["properties"]
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("change", "is_right"),
    [
        (("", ""), True),
        (("{}", "{merge: true, patterns: [a, b], seed: 3}"), True),
        (("- partition: {}", "- inline:"), True),
        (("[models]", "[models, {path: x, expect: [r>=1], budgets: {size: 3 MB}}]"), True),
        (("{}", "{merg: true}"), False),
        (("{}", "{merge: 1}"), False),
        (("{}", "{}\n    inline: {}"), False),
        (("verify: false", "verify: {sed: 1}"), False),
        (("[models]", "[models, {pth: x}]"), False),
    ],
)
def test_the_schema_and_the_command_agree(
    dpl: Dpl,
    project: Write,
    change: tuple[str, str],
    is_right: bool,  # noqa: FBT001  # a case
) -> None:
    """What an editor marks is what the command refuses."""
    jsonschema = pytest.importorskip("jsonschema")
    path = project(PLAIN.replace(*change))
    validator = jsonschema.Draft202012Validator(json.loads(dpl("schema", "pipeline").out))

    assert validator.is_valid(YAML(typ="safe").load(path)) == is_right
    if not is_right:
        assert dpl("build").code == 2
