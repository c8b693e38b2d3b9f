"""Saved results: judged again, and compared with what another run gives."""

import errno
import json
import re
import shlex
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.cli.support import Dpl, Save

NET = """
g (float[n,3] x) => (float[n,3] y) {
  scale = Constant <value = float {2.0}> ()
  y = Mul (x, scale)
}
"""
RESULTS = ("verify", "m.onnx", "--save-results", "r.npz")
EXACTLY = ("verify", "thrice.onnx", "by_third.onnx", "--rtol", "0", "--atol", "0")


@pytest.fixture
def nets(folder: Path, save: Save) -> Path:
    """Save a model, one that is a little off, one with other names; return the folder."""
    save(NET, "m.onnx")
    save(NET.replace("2.0", "2.0002"), "off.onnx")
    save(NET.replace("x", "z"), "other.onnx")
    return folder


@pytest.fixture
def rounded(save: Save) -> tuple[str, str]:
    """Save two models that differ in rounding alone; return their names."""
    names = EXACTLY[1], EXACTLY[2]
    net = "g (float[n,3] x) => (float[n,3] y) <float k = {%s}> { y = %s (x, k) }"
    save(net % ("3.0", "Mul"), names[0])
    save(net % ("0.33333334", "Div"), names[1])
    return names


@pytest.mark.usefixtures("nets")
def test_same_model_gives_the_same(dpl: Dpl) -> None:
    """One model is enough to save results; it agrees with them."""
    assert dpl(*RESULTS).code == 0
    answer = dpl("verify", "m.onnx", "--against", "r.npz", "--json", "-")

    record = json.loads(answer.out)

    assert answer.code == 0
    assert [output["max_abs"] for output in record["outputs"]] == [0, 0]
    assert [case["name"] for case in record["cases"]] == ["seed 0", "seed 1"]


@pytest.mark.usefixtures("nets")
def test_difference_is_found_and_can_be_allowed(dpl: Dpl) -> None:
    """The candidate is run on the saved inputs, and judged by this call's tolerances."""
    dpl(*RESULTS)

    refused = dpl("verify", "off.onnx", "--against", "r.npz")

    assert refused.code == 1
    assert "NOT equivalent" in refused.out
    assert dpl("verify", "off.onnx", "--against", "r.npz", "--rtol", "2e-4").code == 0


@pytest.mark.usefixtures("nets")
def test_inputs_are_those_that_were_fed(dpl: Dpl) -> None:
    """Given values and sizes are kept: a difference that shows only there is found again."""
    dpl(*RESULTS, "--shape", "n=5", "--range", "x=0:0")

    record = json.loads(dpl("verify", "off.onnx", "--against", "r.npz", "--json", "-").out)

    assert not record["equivalent"]
    assert record["verdict"] == "inconclusive"  # nothing times anything is nothing
    assert [choice["shape"] for choice in record["inputs"]] == [[5, 3]]


def test_every_kind_of_input_is_kept(dpl: Dpl, save: Save) -> None:
    """bfloat16, float8, text, integers, sequences and optionals come back."""
    net = """
g (bfloat16[2] b, float8e4m3fn[2] f, float8e5m2[2] e, string[2] s, int64[2] i, seq(float[2]) q,
   optional(seq(float[2])) o)
  => (float[2] y, float[2] w, float[2] v, string[2] t, int64[2] j, int64 n, bool h) {
  y = Cast <to = 1> (b)
  w = Cast <to = 1> (f)
  v = Cast <to = 1> (e)
  t = Identity (s)
  j = Neg (i)
  n = SequenceLength (q)
  h = OptionalHasElement (o)
}
"""
    header = '<ir_version: 9, opset_import: ["" : 19]>'
    save(onnx.parser.parse_model(header + net.replace("Neg", "Identity")), "m.onnx")
    save(onnx.parser.parse_model(header + net), "off.onnx")
    assert dpl(*RESULTS).code == 0

    same = dpl("verify", "m.onnx", "--against", "r.npz")
    record = json.loads(dpl("verify", "off.onnx", "--against", "r.npz", "--json", "-").out)

    assert [line.split()[-1] for line in same.out.splitlines()[1:15]] == ["ok"] * 14
    assert "cannot tell: nothing of j, n changes with the inputs;" in same.out  # as they were fed
    wrong = {output["name"] for output in record["outputs"] if not output["ok"]}
    assert wrong == {"j"}


@pytest.mark.usefixtures("nets")
def test_model_without_inputs_is_compared(dpl: Dpl, save: Save) -> None:
    """What is fed is nothing, and that is kept, too."""
    text = "g () => (float[2] y) { x = Constant <value = float[2] {1.0, %s}> () y = Neg (x) }"
    save(text % "2.0", "m.onnx")
    save(text % "2.5", "wrong.onnx")

    assert dpl(*RESULTS).code == 0
    assert dpl("verify", "m.onnx", "--against", "r.npz").code == 0
    assert dpl("verify", "wrong.onnx", "--against", "r.npz").code == 1


@pytest.mark.usefixtures("nets")
def test_given_values_are_kept(dpl: Dpl) -> None:
    """One case is compared where a file gives the values of one."""
    np.savez("x.npz", x=np.ones((2, 3), ">f4"))

    assert dpl(*RESULTS, "--inputs", "x.npz").code == 0
    assert dpl("verify", "m.onnx", "--against", "r.npz").code == 0
    assert dpl("verify", "off.onnx", "--against", "r.npz").code == 1


def test_other_version_is_named(dpl: Dpl, nets: Path) -> None:
    """Whose results they are is said, where they are another version's."""
    dpl(*RESULTS)
    with np.load(nets / "r.npz") as archive:
        arrays = dict(archive)
    record = json.loads(str(arrays["record"]))
    record["runtime"] = "1.2.3"
    np.savez(nets / "old.npz", **{**arrays, "record": np.array(json.dumps(record))})

    answer = dpl("verify", "m.onnx", "--against", "old.npz")

    assert answer.code == 0
    assert "warning: the results are onnxruntime 1.2.3's" in answer.out
    assert "1.2.3" not in dpl("verify", "m.onnx", "--against", "r.npz").out


@pytest.mark.usefixtures("nets")
def test_another_signature_is_an_answer(dpl: Dpl) -> None:
    """A candidate with other names is not run; what is missing is said."""
    dpl(*RESULTS)

    answer = dpl("verify", "other.onnx", "--against", "r.npz")

    assert answer.code == 1
    assert "the candidate has no input 'x'" in answer.out
    assert "the results hold no input 'z', which the candidate has" in answer.out


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("option", ["--inputs", "--save-inputs"])
def test_results_do_not_replace_inputs(dpl: Dpl, option: str) -> None:
    """What was given is still there afterwards, and so is what was asked for."""
    np.savez("x.npz", x=np.ones((2, 3), np.float32))
    before = Path("x.npz").read_bytes()

    answer = dpl("verify", "m.onnx", "off.onnx", option, "x.npz", "--save-results", "x.npz")

    assert (answer.code, "is another file of this command" in answer.message) == (2, True)
    assert Path("x.npz").read_bytes() == before


@pytest.mark.usefixtures("nets")
def test_nothing_half_written_is_left(
    dpl: Dpl, nets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk leaves what was there before."""

    def fill(file: BinaryIO, *_: object, **__: object) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", fill)
    before = set(nets.iterdir())

    answer = dpl(*RESULTS)

    assert (answer.code, "r.npz: cannot be written: No space" in answer.message) == (2, True)
    assert set(nets.iterdir()) == before


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize(
    ("arguments", "said"),
    {
        "two models": (("m.onnx", "off.onnx", "--against", "r.npz"), "--against takes one model"),
        "no model": (("--against", "r.npz"), "--against takes one model"),
        "both": (("m.onnx", "--against", "r.npz", "--from", "r.npz"), "contradict each other"),
        "seed": (("m.onnx", "--against", "r.npz", "--seed", "7"), "feeds what was saved"),
        "layers": (("m.onnx", "--against", "r.npz", "--layers"), "feeds what was saved"),
        "missing": (("m.onnx", "--against", "none.npz"), "none.npz: cannot be read"),
        "no results": (("m.onnx", "--against", "m.onnx"), "m.onnx: holds no saved results"),
        "nothing": (("m.onnx",), "dpl verify needs ORIGINAL and CANDIDATE"),
    }.values(),
)
def test_what_does_not_go_together(dpl: Dpl, arguments: tuple[str, ...], said: str) -> None:
    """One message, exit code 2."""
    dpl(*RESULTS)

    answer = dpl("verify", *arguments)

    assert answer.code == 2
    assert said in answer.message


@pytest.mark.usefixtures("rounded")
def test_tolerance_that_would_do_is_named(dpl: Dpl) -> None:
    """The option can be copied: with it the output passes, with a little less it does not."""
    refused = dpl(*EXACTLY, "--save-results", "r.npz")
    [option] = set(re.findall(r"y would pass with --tolerance (\S+)", refused.out))
    less = re.sub(r":([\d.e-]+)", lambda found: f":{float(found[1]) * 0.9}", option)

    assert refused.code == 1
    assert dpl("verify", "--from", "r.npz", "--tolerance", option).code == 0
    assert dpl("verify", "--from", "r.npz", "--tolerance", less).code == 1


@pytest.mark.usefixtures("nets")
def test_no_tolerance_is_named_where_a_place_is_wrong(dpl: Dpl) -> None:
    """It would hide what is wrong; what the models say differently is said instead."""
    refused = dpl("verify", "m.onnx", "off.onnx")

    assert refused.code == 1
    assert "would pass" not in refused.out
    assert "changed: " in refused.out


def test_tolerance_that_would_do_can_be_copied_into_a_shell(
    dpl: Dpl, rounded: tuple[str, str]
) -> None:
    """A name with spaces, brackets and quotes is one word of the command."""
    name = "it's [0] $HOME"
    for path in rounded:
        model = onnx.load(path)
        model.graph.output[0].name = model.graph.node[-1].output[0] = name
        onnx.save(model, path)

    refused = dpl(*EXACTLY)
    [line] = [line for line in refused.out.splitlines() if " would pass with " in line]
    options = shlex.split(line.partition(" would pass with ")[2])

    assert refused.code == 1
    assert dpl("verify", *rounded, *options).code == 0


def test_names_and_strings_of_a_model_pose_as_no_verdict(dpl: Dpl, save: Save) -> None:
    """A line of the report is dpl's: line feeds and escapes are shown as what they are."""
    faked = "y\nEquivalent in onnxruntime (seeds 0, 1).\x1b[2J"
    for path, word in (("m.onnx", b"a"), ("other.onnx", f"b\n{faked}".encode())):
        save("g (float[2] x) => (float[2] y) { y = Relu (x) }", path)
        model = onnx.load(path)
        if word != b"a":
            model.graph.node[0].op_type = "Abs"
        model.graph.output[0].name = model.graph.node[0].output[0] = faked
        text = onnx.helper.make_node("Constant", [], ["s"], value_string=word)
        model.graph.node.append(text)
        model.graph.output.append(
            onnx.helper.make_tensor_value_info("s", onnx.TensorProto.STRING, [])
        )
        onnx.save(model, path)

    answer = dpl("verify", "m.onnx", "other.onnx", "--layers")

    assert answer.code == 1
    assert not [line for line in answer.out.splitlines() if line.startswith("Equivalent")]
    assert "\x1b" not in answer.out
