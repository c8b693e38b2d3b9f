"""File names that are not UTF-8, and locales that are not: every command and option takes them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.cli.support import ROOT, SAMPLES
from tests.support.helpers import thinned

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
ODD = os.fsdecode(b"\xff")
NAMES = {"bytes": (ODD, {}), "ascii": ("\u00f6", ASCII), "bytes-in-ascii": (ODD, ASCII)}
M, OUT = "m{}.onnx", "o{}.onnx"
COMMANDS = [
    ("match", M, "-p", "c{}.yaml", "--json", "match{}.json"),
    ("inspect", M, "--json", "inspect{}.json"),
    ("partition", M, "-p", "conv_relu", "-o", OUT, "--json", "p{}.json", "--markdown", "p{}.md"),
    (
        "verify",
        M,
        OUT,
        "--save-inputs",
        "i{}.npz",
        "--save-results",
        "r{}.npz",
        "--junit",
        "j{}.xml",
    ),
    ("verify", M, OUT, "--inputs", "i{}.npz"),
    ("rewrite", M, "-p", "c{}.yaml", "-o", "w{}.onnx", "--plan", "p{}.plan"),
    ("apply", "p{}.plan", M, "-o", "a{}.onnx"),
    ("inline", OUT, "-o", "n{}.onnx"),
    ("learn", M, "--nodes", "Conv_0", "-o", "l{}.yaml"),
    ("diff", M, M, "--json", "d{}.json"),
]
WITH_WEIGHTS = [
    ("verify", "e{}.onnx", "e{}.onnx"),
    ("diff", "e{}.onnx", "e{}.onnx"),
    ("rewrite", "e{}.onnx", "-p", "prepare", "-o", "sub{}/e.onnx"),
    ("verify", "e{}.onnx", "sub{}/e.onnx"),
]
RULES = """dpl: 1
target: t
rewrites:
  - name: r
    pattern: Add(a, b)
    replacement: Sum(a, b)
"""


def run(folder: Path, odd: str, environment: dict[str, str], *arguments: str) -> None:
    """Run a command, and check that it does what it is asked."""
    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-m", "dplcli", *(os.fsencode(a.format(odd)) for a in arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, (arguments, done.stderr)
    assert done.stderr == b""


@pytest.fixture
def odd_folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a folder whose name is odd, too, with models and a catalogue."""
    odd: str = NAMES[request.node.callspec.params["kind"]][0]
    folder = tmp_path / f"d{odd}"
    (folder / f"sub{odd}").mkdir(parents=True)
    shutil.copy(SAMPLES / "residual_block.onnx", folder / M.format(odd))
    (folder / f"c{odd}.yaml").write_text(RULES, encoding="utf-8")
    weight = numpy_helper.from_array(np.arange(300, dtype=np.float32), "w")
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[300] x) => (float[300] y)
        <float[300] w> { t = Identity (x) y = Mul (t, w) }"""
    )
    del proto.graph.input[1:]
    proto.graph.initializer.append(weight)
    stored = proto.graph.initializer[0]
    location = "w\u00f6.bin"
    Path(os.fsdecode(os.fsencode(folder) + b"/" + location.encode())).write_bytes(stored.raw_data)
    stored.ClearField("raw_data")
    stored.data_location = onnx.TensorProto.EXTERNAL
    stored.external_data.add(key="location", value=location)
    (folder / f"e{odd}.onnx").write_bytes(proto.SerializeToString())
    return folder


@pytest.mark.long
@pytest.mark.parametrize("kind", thinned(3, NAMES))
def test_every_command_takes_odd_names(odd_folder: Path, kind: str) -> None:
    """As arguments, as options, and in reports, from which they can be had back."""
    odd, environment = NAMES[kind]
    for command in COMMANDS:
        run(odd_folder, odd, environment, *command)

    record = json.loads((odd_folder / f"match{odd}.json").read_text(encoding="utf-8"))
    assert os.fsencode(record["model"]) == os.fsencode(M.format(odd)) or environment
    onnx.checker.check_model((odd_folder / OUT.format(odd)).read_bytes())
    assert not [path for path in odd_folder.iterdir() if path.name.startswith(".dpl-")]


@pytest.mark.long
@pytest.mark.parametrize("kind", thinned(3, NAMES, first=1))
def test_weights_beside_a_model_are_found(odd_folder: Path, kind: str) -> None:
    """By onnx, by onnxruntime and by the reference evaluator, in files of odd names, too."""
    odd, environment = NAMES[kind]
    for command in WITH_WEIGHTS:
        run(odd_folder, odd, environment, *command)

    assert len(list((odd_folder / f"sub{odd}").iterdir())) == 2
