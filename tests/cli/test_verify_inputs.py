"""What models are fed, from the command line: every command that checks, and every bad request."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from tests.cli.support import Dpl, contents

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
NET = """g (float[N, 3] x) => (float[N, 3] y)
<float k = {41}, float z = {0}, float[3, 3] w = {1, 0, 0, 0, 1, 0, 0, 0, 1}>
{ m = MatMul (x, w) n = Identity (m) e = Equal (n, k) y = Where (e, %s, n) }"""
CODE = """import numpy as np
def at_41(seed):
    return {"x": np.full((2 + seed, 3), 41, np.float32)}
def broken(seed):
    raise KeyError("no such thing")
number = 3
"""


@pytest.fixture
def nets(folder: Path) -> Path:
    """Write two models that differ where a value inside is 41, and inputs that lead there."""
    for name, last in [("a.onnx", "n"), ("b.onnx", "z")]:
        onnx.save(onnx.parser.parse_model(HEADER + NET % last), str(folder / name))
    values = np.full((2, 3), 41, np.float32)
    np.savez(folder / "in.npz", x=values)
    (folder / "code.py").write_text(CODE)
    data = folder / "data" / "test_data_set_0"
    data.mkdir(parents=True)
    tensor = onnx.numpy_helper.from_array(values)
    (data / "input_0.pb").write_bytes(tensor.SerializeToString())
    return folder


SHOWING = {
    "npz": ("--inputs", "in.npz"),
    "data-sets": ("--inputs", "data"),
    "one-data-set": ("--inputs", "data/test_data_set_0"),
    "function-of-a-file": ("--inputs", "code.py:at_41", "--allow-code"),
    "function-of-a-module": ("--inputs", "code:at_41", "--allow-code"),
    "range": ("--range", "x=41:41"),
}


@pytest.mark.parametrize("name", SHOWING)
@pytest.mark.usefixtures("nets")
def test_difference_that_is_asked_for_is_found(dpl: Dpl, name: str) -> None:
    """With these inputs the answer is no; made-up ones do not get there, which is a doubt."""
    made_up = dpl("verify", "a.onnx", "b.onnx")
    answer = dpl("verify", "a.onnx", "b.onnx", *SHOWING[name])

    assert (made_up.code, answer.code) == (1, 1)
    assert "Cannot tell: no difference was found" in made_up.out
    assert "NOT equivalent" in answer.out


@pytest.mark.usefixtures("nets")
def test_report_names_what_was_fed(dpl: Dpl) -> None:
    """The verdict's line and the JSON say where the values came from."""
    answer = dpl("verify", "a.onnx", "a.onnx", "--inputs", "data", "--json", "v.json")

    assert "(test_data_set_0)" in answer.out
    record = json.loads(Path("v.json").read_text(encoding="utf-8"))
    assert record["cases"] == [{"seed": 0, "name": "test_data_set_0"}]
    assert record["inputs"][0]["how"] == "from test_data_set_0"


@pytest.mark.usefixtures("nets")
def test_saved_inputs_show_the_difference_again(dpl: Dpl) -> None:
    """What one run saves, another takes, and saves as the same bytes."""
    first = dpl("verify", "a.onnx", "b.onnx", "--range", "x=41:41", "--save-inputs", "s.npz")
    again = dpl("verify", "a.onnx", "b.onnx", "--inputs", "s.npz", "--save-inputs", "t.npz")

    assert (first.code, again.code) == (1, 1)
    assert Path("s.npz").read_bytes() == Path("t.npz").read_bytes()
    with np.load("s.npz") as saved:
        assert sorted(saved.files) == [
            *("x@0", "x@1", "x@larger sizes (N=128)", "x@other sizes (N=1)"),
        ]


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("option", ["--shape", "--size"])
def test_both_names_of_the_option_set_a_size(dpl: Dpl, option: str) -> None:
    """A dimension by its name, or a whole shape."""
    for value in ("N=5", "x=5x3"):
        answer = dpl("verify", "a.onnx", "a.onnx", option, value, "--json", "-")
        assert json.loads(answer.out)["inputs"][0]["shape"] == [5, 3]


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("command", ["partition", "rewrite", "inline"])
def test_commands_that_write_take_the_same_options(dpl: Dpl, command: str) -> None:
    """The check of a result is fed likewise, and with --allow-code from a function."""
    partition = ("partition", "a.onnx", "--target", "dnnl", "-o", "p.onnx")
    assert dpl(*partition).code == 0
    arguments = {
        "partition": partition,
        "rewrite": ("rewrite", "a.onnx", "--patterns", "prepare", "-o", "r.onnx"),
        "inline": ("inline", "p.onnx", "-o", "i.onnx"),
    }

    answer = dpl(*arguments[command], "--inputs", "code:at_41", "--allow-code")

    assert answer.code == 0
    assert "code:at_41, seed 0" in answer.out


BAD = {
    "code-without-leave": (("--inputs", "code:at_41"), "is code", "--allow-code"),
    "no-such-function": (("--inputs", "code:at_42", "--allow-code"), "no function 'at_42'", ""),
    "no-function": (("--inputs", "code:number", "--allow-code"), "no function 'number'", ""),
    "no-such-module": (("--inputs", "cood:at_41", "--allow-code"), "No module named 'cood'", ""),
    "no-such-code-file": (("--inputs", "cood.py:f", "--allow-code"), "no file 'cood.py'", ""),
    "broken-function": (("--inputs", "code:broken", "--allow-code"), "KeyError for seed 0", ""),
    "no-such-file": (("--inputs", "no.npz"), "no such file or folder", ""),
    "no-inputs": (("--inputs", "code.py"), "not inputs", "test_data_set_0"),
    "empty-path": (("--inputs", ""), "--inputs", ""),
    "a-model": (("--inputs", "a.onnx"), "not inputs", ".npz"),
    "range-without-end": (("--range", "x=3"), "not a range", "ids=0:1000"),
    "range-without-name": (("--range", "=0:3"), "not a range", "ids=0:1000"),
    "range-of-words": (("--range", "x=a:b"), "not a range", "ids=0:1000"),
    "range-of-three": (("--range", "x=1:2:3"), "not a range", "ids=0:1000"),
    "range-backwards": (("--range", "x=3:1"), "holds no number: 3 to 1", "ids=0:1000"),
    "range-of-nan": (("--range", "x=nan:1"), "holds no number", ""),
    "range-twice": (("--range", "x=0:1", "--range", "x=0:2"), "another range", ""),
    "range-unknown": (("--range", "ids=0:1"), "'ids', which is no input", "there are: x"),
    "shape-twice": (("--shape", "N=1", "--size", "N=2"), "another size", ""),
    "shape-rank": (("--shape", "x=1x2x3"), "has 3 dimensions, but 2", ""),
    "shape-fixed": (("--shape", "x=1x4"), "dimension 1 of 'x' is 3, not 4", ""),
    "shape-unknown": (("--shape", "z=1x4"), "no input 'z'", "there are: x"),
    "save-over-model": (("--save-inputs", "a.onnx"), "saved as .npz", "inputs.npz"),
    "save-nowhere": (("--save-inputs", "no/x.npz"), "no folder 'no'", ""),
    "save-over-inputs": (
        ("--inputs", "in.npz", "--save-inputs", "in.npz"),
        "would replace what is read",
        "",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_request_is_one_message_and_writes_nothing(dpl: Dpl, nets: Path, name: str) -> None:
    """Exit code 2; also for a command that would have written a model."""
    options, message, hint = BAD[name]
    before = contents(nets)
    for start in [("verify", "a.onnx", "a.onnx"), ("partition", "a.onnx", "--target", "dnnl")]:
        answer = dpl(*start, *options)
        assert answer.code == 2
        assert answer.out == ""
        assert message in answer.err
        assert hint in answer.err
        assert "Traceback" not in answer.err
    assert {k: v for k, v in contents(nets).items() if "__pycache__" not in str(k)} == before
