"""Commands that take many models: one report for all, and none stops the others."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.cli.support import LISTENING, ROOT, SAMPLES, Dpl, Save, contents

RULES = ("--patterns", "conv_relu")
NETS = ("residual_block", "resnet18_bn", "super_resolution")


@pytest.fixture
def models(folder: Path) -> Path:
    """Return a folder with three small real nets, one of them further down."""
    inside = folder / "models"
    (inside / "deep").mkdir(parents=True)
    for name in NETS[:2]:
        shutil.copy(SAMPLES / f"{name}.onnx", inside)
    shutil.copy(SAMPLES / f"{NETS[2]}.onnx", inside / "deep")
    return inside


def rows(out: str) -> list[list[str]]:
    """Return the words of each row of the table."""
    return [line.split() for line in out.partition("\n\n")[0].splitlines()[1:]]


@pytest.mark.usefixtures("models")
def test_a_folder_stands_for_its_models(dpl: Dpl) -> None:
    """A row for each, sorted, those below included; each says what the command alone says."""
    answer = dpl("match", "models", *RULES, "--jobs", 2, "--json", "all.json")

    assert (answer.code, answer.err) == (0, "")
    names = ["models/residual_block.onnx", "models/resnet18_bn.onnx"]
    names.append("models/deep/super_resolution.onnx")
    assert [row[0] for row in rows(answer.out)] == names
    assert answer.out.endswith("3 models: 3 ok.\n")
    record = json.loads(Path("all.json").read_text())
    assert record["schema"] == "dpl.models/1"
    assert record["models"] == {"ok": 3, "no": 0, "error": 0}
    for name, item in zip(names, record["answers"], strict=True):
        alone = dpl("match", name, *RULES, "--json", "-")
        assert (item["model"], item["result"]) == (name, json.loads(alone.out))
    used = {rule: counts["used"] for rule, counts in record["rules"].items()}
    assert used == {
        "dnnl.conv2d_bn_relu": 9,
        "dnnl.conv2d_bn_sum_relu": 8,
        "dnnl.conv2d_bias_relu": 5,
    }


@pytest.mark.usefixtures("models")
def test_results_lie_below_the_output_folder_as_the_models_do(dpl: Dpl) -> None:
    """They are those that the command writes for each alone, to the byte."""
    answer = dpl("partition", "models", *RULES, "--no-verify", "-o", "out")

    assert (answer.code, answer.err) == (0, "")
    written = contents(Path("out"))
    assert sorted(written) == sorted(
        ["deep/super_resolution.onnx", "residual_block.onnx", "resnet18_bn.onnx"]
    )
    for name, content in written.items():
        dpl("partition", f"models/{name}", *RULES, "--no-verify", "-o", "alone.onnx")
        assert Path("alone.onnx").read_bytes() == content


@pytest.mark.usefixtures("models")
def test_results_of_an_earlier_run_are_no_models(dpl: Dpl) -> None:
    """What is written beside the models is left out the next time, unless it is named."""
    for _ in range(2):
        answer = dpl("partition", "models", *RULES, "--no-verify")
        assert answer.code == 0
        assert answer.out.endswith("3 models: 3 ok.\n")
    assert len(contents(Path("models"))) == 6

    answer = dpl("match", "models/*.partitioned.onnx", *RULES)

    assert answer.out.endswith("2 models: 2 ok.\n")


@pytest.mark.usefixtures("models")
def test_what_is_wrong_with_some_stops_no_other(dpl: Dpl, folder: Path) -> None:
    """One message for each, exit code 2, and all others are done."""
    (folder / "empty").mkdir()
    (folder / "broken.onnx").write_bytes(b"\x08\x08 no model")
    model = "models/resnet18_bn.onnx"

    answer = dpl(
        *("match", "empty", model, "broken.onnx", model, "missing.onnx", "*.nix", "models/deep"),
        *(*RULES, "--expect", "dnnl.conv2d_bias_relu>=3", "--junit", "r.xml"),
    )

    assert answer.code == 2
    assert answer.err.splitlines() == [
        "dpl: error: empty: no .onnx file is in this folder or below",
        "dpl: models/resnet18_bn.onnx: expected dnnl.conv2d_bias_relu>=3, found 0",
        "dpl: error: broken.onnx: is not an ONNX model, or was cut off",
        "dpl: error: models/resnet18_bn.onnx: is named twice; it is done once",
        "dpl: error: missing.onnx: no such file",
        "dpl: error: *.nix: no file is called like this",
    ]
    assert [row[1] for row in rows(answer.out)] == [
        *("error", "Not", "error", "error", "error", "error", "3")
    ]
    assert answer.out.endswith("7 models: 1 ok, 1 not, 5 could not be done.\n")
    suites = {each.get("name"): each for each in ET.parse("r.xml").getroot()}  # noqa: S314  # ours
    counts = {name: [each.get(k) for k in ("failures", "errors")] for name, each in suites.items()}
    assert counts["broken.onnx"] == ["0", "1"]
    assert counts[model] == ["1", "1"]  # the expectation alone; and that it is named twice
    assert counts["models/deep/super_resolution.onnx"] == ["0", "0"]
    assert [case.get("name") for case in suites[model].iter("testcase")] == [
        f"{model}: dpl match: verdict",
        f"{model}: expectations: dnnl.conv2d_bias_relu>=3",
        f"{model}: verdict",
    ]


def test_a_link_to_a_model_of_the_same_folder_is_no_other_model(dpl: Dpl, models: Path) -> None:
    """It is done once, under the name of the file; a link that is named itself is an error."""
    (models / "a_link.onnx").symlink_to("resnet18_bn.onnx")
    (models / "one.onnx").symlink_to(SAMPLES / "light_resnet50.onnx")
    (models / "two.onnx").symlink_to(SAMPLES / "light_resnet50.onnx")
    answer = dpl("inspect", "models")
    assert (answer.code, answer.err) == (0, "")
    names = ["one", "residual_block", "resnet18_bn", "deep/super_resolution"]
    assert [row[0] for row in rows(answer.out)] == [f"models/{name}.onnx" for name in names]
    answer = dpl("inspect", "models/resnet18_bn.onnx", "models/a_link.onnx")
    assert answer.message == (
        "models/a_link.onnx: is named twice as models/resnet18_bn.onnx, too; it is done once"
    )


def test_a_folder_without_models_alone_is_an_error(dpl: Dpl, folder: Path) -> None:
    """There is no table, only the message."""
    (folder / "empty").mkdir()

    answer = dpl("match", "empty", *RULES)

    assert (answer.code, answer.out) == (2, "")
    assert answer.message == "empty: no .onnx file is in this folder or below"


@pytest.mark.usefixtures("models")
def test_what_is_wrong_with_the_call_is_said_once(dpl: Dpl) -> None:
    """Not for every model, and there is no table of the same words."""
    answer = dpl("match", "models", "--patterns", "nosuch")

    assert (answer.code, answer.out) == (2, "")
    assert answer.message.startswith("nosuch: no such catalogue")
    assert answer.message.endswith("(3 models)")
    assert "conv_relu" in answer.hint


@pytest.mark.usefixtures("models")
def test_mistakes_of_a_catalogue_are_said_in_lines(dpl: Dpl, folder: Path) -> None:
    """Each once, with its excerpt below it, as for one model."""
    rules = (
        "dpl: 1\ntarget: t\npatterns:\n- {name: a, pattern: Rleu(x)}\n- {name: b, pattern: Neg()}\n"
    )
    (folder / "bad.yaml").write_text(rules, encoding="utf-8")

    answer = dpl("match", "models", "--patterns", "bad.yaml")

    lines = answer.err.splitlines()
    assert (answer.code, answer.out) == (2, "")
    assert lines[0] == "dpl: error: bad.yaml:4:22: rule 'a': unknown operator 'Rleu' (3 models)"
    assert lines[2].strip() == "^"
    assert [line for line in lines if "(3 models)" in line and "'b'" in line]
    assert not any("\\n" in line for line in lines)


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("partition", "-o", "out.onnx"), "-o out.onnx: there are several models, so it must be"),
        (("rewrite", "--plan", "p.yaml"), "--plan is for one model, and there are 3"),
        (("rewrite", "--trace"), "--trace is for one model, and there are 3"),
        (("inspect", "--c-header", "k.h"), "--c-header is for one model, and there are 3"),
        (("inspect", "--model-timeout", "nan"), "--model-timeout 'nan': expected a number of"),
    ],
)
def test_options_of_one_model_are_refused(
    dpl: Dpl, folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    """Each model would replace what the one before wrote there."""
    before = contents(folder)

    rules = () if arguments[0] == "inspect" else RULES
    answer = dpl(*arguments, "models", *rules)

    assert answer.code == 2
    assert answer.message.startswith(message)
    assert contents(folder) == before


def test_two_results_of_one_name_are_refused(dpl: Dpl, models: Path) -> None:
    """The first one is written, the second one is named."""
    shutil.copy(models / "resnet18_bn.onnx", models / "deep" / "resnet18_bn.onnx")

    answer = dpl(
        *("partition", "models/resnet18_bn.onnx", "models/deep/resnet18_bn.onnx", *RULES),
        *("--no-verify", "-o", "out"),
    )

    assert answer.code == 2
    assert answer.message == (
        "models/deep/resnet18_bn.onnx: its result would replace that of models/resnet18_bn.onnx"
    )
    assert list(contents(Path("out"))) == ["resnet18_bn.onnx"]


@pytest.mark.long
def test_two_folders_are_compared_model_by_model(dpl: Dpl, models: Path) -> None:
    """By their names; or with a word more, as results have; one without partner is an error."""
    dpl("partition", "models", *RULES, "--no-verify", "-o", "out")
    (Path("out") / "residual_block.onnx").rename("out/residual_block.mine.onnx")

    answer = dpl("verify", "models", "out", "--seed", 0)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.endswith("3 models: 3 ok.\n")

    (Path("out") / "resnet18_bn.onnx").unlink()
    (models / "deep" / "super_resolution.onnx").write_bytes(
        (models / "residual_block.onnx").read_bytes()
    )
    answer = dpl("diff", "models", "out")
    assert answer.code == 2
    assert answer.message == "models/resnet18_bn.onnx: out has no model of this name"


@pytest.mark.long
@pytest.mark.usefixtures("models")
def test_resume_leaves_out_what_is_done(dpl: Dpl) -> None:
    """Unless the model, an option, a catalogue or the result has changed."""
    shutil.copy(ROOT / "patterns" / "conv_relu.yaml", "mine.yaml")
    call: tuple[str, ...] = ("partition", "models", "-p", "mine.yaml", "--no-verify")
    call = (*call, "-o", "out", "--resume")

    def done_before() -> str:
        answer = dpl(*call)
        assert answer.code == 0
        assert answer.out.endswith("3 models: 3 ok.\n")
        return answer.err

    assert done_before() == ""
    assert done_before() == "dpl: 3 of 3 models were done before\n"
    Path("out/resnet18_bn.onnx").write_bytes(b"")
    assert done_before() == "dpl: 2 of 3 models were done before\n"
    shutil.copy("models/residual_block.onnx", "models/deep/super_resolution.onnx")
    assert done_before() == "dpl: 2 of 3 models were done before\n"
    text = Path("mine.yaml").read_text(encoding="utf-8")
    for same in (f"{text}# another\n", text.replace("dpl: 1\n", "") + "dpl: 1\n"):
        Path("mine.yaml").write_text(same, encoding="utf-8")
        assert done_before() == "dpl: 3 of 3 models were done before\n"
    Path("mine.yaml").write_text(f"include: [other.yaml]\n{text}", encoding="utf-8")
    for other in ("[]", "[{name: r, pattern: Relu(x)}]"):
        Path("other.yaml").write_text(f"dpl: 1\ntarget: dnnl\npatterns: {other}\n")
        assert done_before() == ""
    call = (*call, "--strip", "metadata")
    assert done_before() == ""


@pytest.mark.long
def test_resume_sees_the_code_that_catalogues_name(
    dpl: Dpl, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a check imports, and what an installed package offers."""
    site = models.parent / "site"
    (site / "acme_rules").mkdir(parents=True)
    (site / "acme-1.0.dist-info").mkdir()
    (site / "acme-1.0.dist-info" / "METADATA").write_text("Name: acme\nVersion: 1.0\n")
    point = "[dplcli.catalogs]\nacme = acme_rules.offered:here\n"
    (site / "acme-1.0.dist-info" / "entry_points.txt").write_text(point)
    (site / "acme_rules" / "__init__.py").write_text("")
    offer = "from pathlib import Path\nhere = Path(__file__).parent / 'own.yaml'\n"
    (site / "acme_rules" / "offered.py").write_text(offer)
    rule = "dpl: 1\ntarget: t\npatterns: [{name: %s, pattern: Relu(x)}]\n"
    (site / "acme_rules" / "own.yaml").write_text(rule % "a")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    Path("checks.py").write_text(
        "from limits import LEAST\ndef ok(match): return match.reject('no') if LEAST else None\n"
    )
    Path("limits.py").write_text("LEAST = 0\n")
    checked = "dpl: 1\ntarget: t\npatterns: [{name: b, pattern: Relu(x), check: 'checks:ok'}]\n"
    Path("c.yaml").write_text(checked)
    call = ("match", "models", "-p", "c.yaml", "-p", "acme", "--allow-code", "--resume")

    def counts() -> list[str]:
        answer = dpl(*call, "--json", "r.json")
        assert answer.code == 0, answer.err
        rules = json.loads(Path("r.json").read_text())["rules"]
        used = [f"{rule} {found['used']}" for rule, found in sorted(rules.items())]
        return [*used, answer.err]

    all_before = "dpl: 3 of 3 models were done before\n"
    *first, said = counts()
    assert said == ""
    assert counts() == [*first, all_before]
    Path("limits.py").write_text("LEAST = 1\n")
    *second, said = counts()
    assert (second == first, said) == (False, "")
    (site / "acme_rules" / "own.yaml").write_text(rule % "another")
    *third, said = counts()
    assert (third == second, said) == (False, "")
    assert counts() == [*third, all_before]


def in_a_process(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, to its end."""
    return subprocess.run(  # noqa: S603  # ours
        command,
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.mark.long
def test_what_a_killed_process_left_goes_at_the_end(folder: Path) -> None:
    """The one that started it takes it away, and so does the next run."""
    inside = folder / "models"
    inside.mkdir()
    for copy in range(2):
        shutil.copy(SAMPLES / "residual_block.onnx", inside / f"m{copy}.onnx")
    (inside / "killing.py").write_text(KILLING)
    words = [*("-p", "conv_relu", "-o", "out", "--no-verify", "--resume", "--jobs", "2")]
    command = [sys.executable, "-m", "dplcli", "partition", "models/*.onnx", *words]
    environment = os.environ | {"PYTHONPATH": f"{inside}{os.pathsep}{ROOT}"}
    (inside / "sitecustomize.py").write_text("import killing\n")
    done = in_a_process(command, folder, environment)
    assert done.returncode == 2
    assert "the process that worked on it died" in done.stderr
    assert list(contents(folder / "out")) == ["m1.onnx"]


KILLING = """
import os, signal, sys, threading
def watch(event, arguments):
    if event == "os.rename" and ".dpl-" in str(arguments[0]) and "m0.onnx" in str(arguments[1]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
"""


@pytest.mark.long
def test_external_data_counts(dpl: Dpl, folder: Path) -> None:
    """A model whose weights lie in another file is another model if these change."""
    for name in NETS[:2]:
        (folder / name).mkdir()
        proto = onnx.load(SAMPLES / f"{name}.onnx")
        for tensor in proto.graph.initializer:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
        onnx.save(
            proto,
            folder / name / "m.onnx",
            save_as_external_data=True,
            location="w",
            size_threshold=0,
        )
    call = ("match", *NETS[:2], *RULES, "--resume")
    assert dpl(*call).code == 0
    assert dpl(*call).err == "dpl: 2 of 2 models were done before\n"

    weights = folder / NETS[0] / "w"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")

    assert dpl(*call).err == "dpl: 1 of 2 models were done before\n"


def is_group_alive(group: int) -> bool:
    """Tell whether a process of a group goes on."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, _, of = path.read_text().rpartition(")")[2].split()[:3]
            if int(of) == group and state != "Z":
                return True
    return False


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_after_a_kill_resume_does_the_rest(folder: Path, number: int) -> None:
    """What was done stays done; no file is half-written, and no process goes on."""
    inside = folder / "models"
    inside.mkdir()
    for copy in range(30):
        shutil.copy(SAMPLES / "light_resnet50.onnx", inside / f"m{copy:02}.onnx")
    words = ["partition", "models", "--target", "dnnl", "-o", "out", "--no-verify", "--resume"]
    command = [sys.executable, "-c", LISTENING, *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(  # noqa: S603  # ours
        command, cwd=folder, env=environment, start_new_session=True
    ) as process:
        try:
            late = time.monotonic() + 60
            while len(list((folder / "out").glob("m*.onnx"))) < 4:
                assert process.poll() is None
                assert time.monotonic() < late
                time.sleep(0.05)
            process.send_signal(number)
            process.wait(60)
        finally:
            process.kill()
    codes: dict[int, int] = {signal.SIGKILL: -number, signal.SIGTERM: 2, signal.SIGINT: 130}
    assert process.returncode == codes[number]
    late = time.monotonic() + 20  # the processes that it started have to notice
    while is_group_alive(process.pid):
        assert time.monotonic() < late
        time.sleep(0.02)
    left = contents(folder / "out")
    assert 4 <= len(left) < 30
    assert len({content for name, content in left.items() if name.endswith(".onnx")}) == 1
    assert all(not name.startswith(".") for name in left)

    done = in_a_process(command, folder, environment)

    assert done.returncode == 0
    before = int(done.stderr.split()[1])
    assert len(left) - 2 <= before <= len(left)
    assert len(set(contents(folder / "out").values())) == 1
    assert done.stdout.endswith("30 models: 30 ok.\n")


@pytest.mark.usefixtures("models")
def test_what_is_said_of_each_stands_above_the_table(dpl: Dpl) -> None:
    """By explain, and by others with --verbose; as it is said of the model alone."""
    calls = (("explain", *RULES, "--rule", "conv2d_clip"), ("match", *RULES, "--verbose"))
    names = [f"models/{name}.onnx" for name in NETS[:2]]
    for name, *rest in calls:
        alone = [dpl(name, model, *rest).out for model in names]

        answer = dpl(name, *names, *rest)

        told = "".join(f"{model}\n{text}\n" for model, text in zip(names, alone, strict=True))
        assert answer.out.startswith(f"{told}model ")


@pytest.mark.usefixtures("models")
def test_one_page_and_one_file_for_ci_have_all_models(dpl: Dpl) -> None:
    """A row and a suite for each."""
    reports = ("--html", "p.html", "--junit", "r.xml", "--markdown", "r.md")
    answer = dpl("partition", "models", *RULES, "--no-verify", *reports, "-q")

    assert (answer.code, answer.out, answer.err) == (0, "", "")
    page = Path("p.html").read_text()
    names = [f"models/{name}.onnx" for name in NETS[:2]]
    names.append(f"models/deep/{NETS[2]}.onnx")
    assert all(page.count(f">{name}<") == 1 for name in names)
    suites = [each.get("name") for each in ET.parse("r.xml").getroot()]  # noqa: S314  # ours
    assert suites == names
    lines = Path("r.md").read_text().splitlines()
    table = lines[lines.index("### Models") + 2 :]
    assert table[0].startswith("| model | result |")
    assert sorted(line.split("|")[1].strip(" ") for line in table[2:5]) == sorted(
        f"<code>{name.replace('_', '&#95;')}</code>" for name in names
    )


WRONG = "dpl: 1\nrewrites:\n  - name: wrong\n    pattern: Relu(x)\n    replacement: Neg(x)\n"
RELU = "g (float[4] x) => (float[4] y) { y = Relu (x) }"
ABS = "g (float[4] x) => (float[4] y) { y = Abs (x) }"


def nets_in(save: Save, **texts: str) -> None:
    """Write models into folders: ``a_m=TEXT`` is ``a/m.onnx``."""
    for name, text in texts.items():
        where, _, stem = name.partition("_")
        Path(where).mkdir(exist_ok=True)
        save(text, f"{where}/{stem}.onnx")


@pytest.mark.long
def test_rules_are_bisected_on_each_model(dpl: Dpl, save: Save) -> None:
    """Each that breaks has a folder of its own; done again with --resume if that is gone."""
    nets_in(save, a_one=RELU, a_two=ABS, a_three=RELU)
    Path("wrong.yaml").write_text(WRONG)
    asked = ("bisect", "a", "-p", "wrong.yaml", "-o", "faults", "--resume", "--jobs", 1)
    answer = dpl(*asked)
    assert answer.code == 1
    assert [row[0] for row in rows(answer.out)] == ["a/one.onnx", "a/three.onnx", "a/two.onnx"]
    assert answer.out.endswith("3 models: 1 ok, 2 not.\n")
    assert sorted(each.name for each in Path("faults").iterdir()) == ["one", "three"]
    assert dpl("bisect", "--reproduce", "faults/one/1").code == 1

    shutil.rmtree("faults/three")
    again = dpl(*asked)
    assert "dpl: 2 of 3 models were done before\n" in again.err
    assert Path("faults/three").is_dir()
    assert again.out == answer.out

    several = dpl("bisect", "a/one.onnx", "a/two.onnx", "-p", "wrong.yaml")
    assert (several.code, len(rows(several.out))) == (1, 2)


def test_folders_are_bisected_pair_by_pair(dpl: Dpl, save: Save) -> None:
    """Where two models of a name part; alone, a pair is what it was."""
    nets_in(save, a_one=RELU, a_two=ABS, b_one=RELU, b_two=RELU)
    answer = dpl("bisect", "a", "b", "--json", "-")
    assert answer.code == 1
    found = {each["model"]: each["status"] for each in json.loads(answer.out)["answers"]}
    assert found == {"a/one.onnx": "ok", "a/two.onnx": "no"}
    assert dpl("bisect", "a/two.onnx", "b/two.onnx").code == 1
    answer = dpl("bisect", "a/two.onnx", "b/two.onnx", "--resume")
    assert (answer.code, answer.message) == (2, "--resume and --scheduler are for many models")


@pytest.mark.long
def test_rules_are_learned_from_each_pair(dpl: Dpl, save: Save) -> None:
    """Each pair has a catalogue, which other commands read; one that exists is not replaced."""
    twice = "g (float[4] x) => (y) { t = Relu (x) y = Relu (t) }"
    nets_in(save, a_one=RELU, a_two=ABS, b_one=twice)
    nets_in(save, b_two=ABS)
    answer = dpl("learn", "--before", "a", "--after", "b", "-o", "rules", "--no-verify")
    assert answer.code == 1
    assert rows(answer.out)[0][:3] == ["a/one.onnx", "1", "rule"]
    assert "b.onnx" not in answer.out
    assert "a/two.onnx: two.onnx and two.onnx differ in no node: nothing to learn.\n" in answer.err
    assert [str(each) for each in Path("rules").iterdir()] == ["rules/one.yaml"]
    assert dpl("patterns", "check", "rules/one.yaml").code == 0

    text = Path("rules/one.yaml").read_text()
    answer = dpl("learn", "--before", "a", "--after", "b", "-o", "rules", "--no-verify")
    assert answer.code == 2
    assert answer.message.startswith("a/one.onnx: rules/one.yaml: exists\n")
    assert Path("rules/one.yaml").read_text() == text


def test_a_page_that_is_gone_is_drawn_again(dpl: Dpl, save: Save) -> None:
    """With --resume, also where pages lie beside their models."""
    nets_in(save, a_one=RELU, a_two=ABS)
    assert dpl("view", "a", "--resume").code == 0
    Path("a/one.html").unlink()
    again = dpl("view", "a", "--resume")
    assert "dpl: 1 of 2 models were done before\n" in again.err
    assert Path("a/one.html").is_file()


def test_many_models_are_run(dpl: Dpl, save: Save) -> None:
    """What each gives lies in the folder; one that does not run stops no other."""
    nets_in(save, a_one=RELU, a_two=ABS)
    Path("a/bad.onnx").write_text("no model")
    answer = dpl("run", "a", "-o", "given")
    assert answer.code == 2
    assert answer.message.startswith("a/bad.onnx: is a text file")
    assert sorted(each.name for each in Path("given").iterdir()) == ["one.npz", "two.npz"]
    with np.load("given/two.npz") as kept:
        assert kept["y"].shape == (4,)
        assert (kept["y"] >= 0).all()


def test_a_plan_is_applied_to_many_models(dpl: Dpl, save: Save) -> None:
    """Where it fits; the results lie in the folder."""
    nets_in(save, a_one=RELU, a_two=ABS)
    Path("wrong.yaml").write_text(WRONG)
    asked = ("-p", "wrong.yaml", "--no-verify", "--plan", "p.yaml", "-o", "w.onnx")
    assert dpl("rewrite", "a/one.onnx", *asked).code == 0
    asked = ("--no-verify", "--force", "--skip-missing", "-o", "made", "--jobs", "1")
    answer = dpl("apply", "p.yaml", "a", *asked)
    assert (answer.code, [row[0] for row in rows(answer.out)]) == (0, ["a/one.onnx", "a/two.onnx"])
    assert onnx.load("made/one.onnx").graph.node[0].op_type == "Neg"


def test_nodes_are_learned_from_one_model(dpl: Dpl, save: Save) -> None:
    """Names of nodes are those of one model."""
    nets_in(save, a_one=RELU)
    answer = dpl("learn", "a", "--nodes", "y")
    assert (answer.code, answer.message) == (2, "a: is a directory, not a model")
