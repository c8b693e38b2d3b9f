"""What every command answers over real models, as hashes: nothing a user sees changes unnoticed.

A change of the code's form must leave all of this alone. A change that is meant is recorded anew::

    python -m tests.golden.record                 # writes golden.json
    python -m tests.golden.record --keep FOLDER   # keeps the answers, to compare two checkouts
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from unittest import mock

from onnx import ModelProto, TensorProto

from dplcli.cli.main import dpl, run
from tests.corpus.nets import OURS, corpus, our_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    Answers: TypeAlias = dict[str, dict[str, str]]

GOLDEN = Path(__file__).parent / "golden.json"
SAMPLES = Path(__file__).parents[2] / "sample_models"
WIDTH = "100"

MEASURING = ("verify", "bisect", "rewrite m.onnx -p wrong.yaml -o refused.onnx", "--version")
"""Commands whose numbers depend on the processor: what they print is recorded without them."""

ON_ANY_MODEL = """
inspect m.onnx
inspect m.onnx --json -
match m.onnx --target dnnl,cublas --verbose
match m.onnx --target cutlass --escape outputs --json -
explain m.onnx --target dnnl
explain m.onnx --target cublas --verbose --json explain.json
partition m.onnx --target dnnl --no-verify -o dnnl.onnx --json dnnl.json --verbose
inspect dnnl.onnx --contract --c-header dnnl.h --python dnnl.py
inline dnnl.onnx --no-verify -o inlined.onnx --json inlined.json
diff m.onnx dnnl.onnx --verbose --json diff.json --markdown diff.md
verify m.onnx dnnl.onnx --level disable --seed 0 --json verify.json
partition m.onnx --target cublas,dnnl -p dnnl_ops --merge --prune --no-verify -o merged.onnx
partition m.onnx --target cutlass --constants embed --escape outputs --no-verify -o cutlass.onnx
repeat m.onnx --no-verify -o repeat.onnx --json repeat.json
rewrite m.onnx -p prepare -p fuse --no-verify -o r.onnx --json r.json --plan plan.yaml --trace
apply plan.yaml m.onnx --no-verify -o applied.onnx --json applied.json
diff m.onnx r.onnx --ignore nothing --json rewritten.json
rewrite m.onnx -p prepare -p fuse_ort --no-verify -o ort.onnx
rewrite m.onnx -p prepare --opset 21 --no-verify -o raised.onnx
"""

ON_RESIDUAL_BLOCK = """
learn m.onnx --nodes Conv_1,Relu_0 --verbose
inspect m.onnx --node Relu_0
explain m.onnx -p conv_relu --rule conv2d_relu --node Relu_0
partition m.onnx -p conv_relu --no-verify -o p.onnx
inline p.onnx --verbose --no-verify -o i.onnx
verify m.onnx p.onnx --layers --html v.html
rewrite m.onnx -p prepare -p fuse --no-verify -o f.onnx --html f.html
bisect m.onnx -p prepare --json innocent.json
bisect m.onnx -p wrong.yaml -o faults --json bisect.json
rewrite m.onnx -p wrong.yaml -o wrong.onnx --no-verify --quiet
rewrite m.onnx -p wrong.yaml -o refused.onnx --keep-failed
bisect m.onnx wrong.onnx -o diverging --json diverging.json
verify m.onnx p.onnx --layers --json layers.json --junit v.xml --sarif v.sarif --markdown v.md
match m.onnx -p conv_relu --expect conv2d_bias_relu>=30
match nothing.onnx -p conv_relu
match m.onnx -p conv_rule
match m.onnx
partition m.onnx --target dnnl --json - --junit j.xml --markdown j.md --no-verify
patterns list
patterns schema
patterns show conv_relu --json -
patterns show dnnl
patterns check cublas --verbose
patterns test conv_relu
patterns contract cublas --json -
--help
--version
"""

WRONG = """
dpl: 1
rewrites:
  - name: relu_to_abs
    pattern: Relu(x)
    replacement: Abs(x)
"""

CORPUS = """
bert-legacy17-ortfused cond_net-dynamo18 deberta-legacy17 gpt2-dynamo20 greedy_loop-legacy17
gru-legacy17 llama-legacy17 lstm-legacy13-dynquant mobilenetv2-legacy13-qdq-perchannel
onnx_test_sequence_model4
resnet18-legacy16-fn scan_net-dynamo18 sd_vae_decoder-dynamo20 sklearn-pipeline
t5_encoder-legacy17-fp16 torch_transformer-legacy17-fn trt_nested_local_function vit-dynamo23
while_net-dynamo20 yunet_n_dynamic
"""
"""Exporters, opsets, element types, bodies, functions and domains, as different as they come."""


COMPUTING = {"deberta-legacy17"}
"""Where rules multiply matrices of constants: the last bits depend on the processor."""


@dataclass(frozen=True)
class Session:
    """Commands that run one after the other in one folder.

    Attributes:
        model: What is ``m.onnx`` there.
        commands: The commands, without ``dpl``.
        computes: Models are recorded without the numbers of their float weights.
    """

    model: Path
    commands: tuple[str, ...]
    computes: bool = False


def sessions() -> dict[str, Session]:
    """Return every session by its name, whether its model is here or not."""
    any_model = tuple(ON_ANY_MODEL.strip().splitlines())
    folder = corpus() or OURS
    models = {path.stem: path for path in sorted(SAMPLES.glob("*.onnx"))}
    models |= {name: our_model(name) or folder / f"{name}.onnx" for name in CORPUS.split()}
    found = {name: Session(path, any_model, name in COMPUTING) for name, path in models.items()}
    commands = (*ON_RESIDUAL_BLOCK.strip().splitlines(), *helps())
    found["commands"] = Session(SAMPLES / "residual_block.onnx", commands)
    return found


def helps() -> Iterator[str]:
    """Iterate over the commands that print help."""
    from dplcli.cli.main import COMMANDS  # noqa: PLC0415  # a list, not a command

    yield from (f"{name} --help" for name in COMMANDS)


def answers(session: Session, keep: Path | None = None) -> Answers:
    """Run *session* in a folder of its own; return what each command left behind, as hashes.

    Args:
        session: What to run.
        keep: A new folder for the answers themselves; None to drop them.
    """
    found: Answers = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shutil.copy(session.model, "m.onnx")
        Path("m.onnx").chmod(0o644)
        Path("wrong.yaml").write_text(WRONG, encoding="utf-8")
        seen = _files(Path())
        for number, command in enumerate(session.commands):
            left = _left_behind(command)
            now = _files(Path())
            left |= {name: data for name, data in now.items() if seen.get(name) != data}
            seen = now
            if session.computes:
                written = {name: data for name, data in left.items() if name.endswith(".onnx")}
                left |= {name: _without_weights(data) for name, data in written.items()}
            found[command] = {
                part: hashlib.sha256(_without_numbers(command, part, data)).hexdigest()[:16]
                for part, data in sorted(left.items())
            }
            if keep is not None:
                _store(folder_of(keep, number, command), left)
    return found


def folder_of(keep: Path, number: int, command: str) -> Path:
    """Return where the answer to a command of a session is kept."""
    return keep / f"{number:02} {command.split(maxsplit=1)[0]}"


def _left_behind(command: str) -> dict[str, bytes]:
    """Run *command*; return its exit code and what it printed.

    Help is asked in a process of its own: nothing that ran before has a say in it.
    """
    surroundings = {"COLUMNS": WIDTH, "NO_COLOR": "1"}
    if command.endswith(" --help"):
        asked = [sys.executable, "-m", "dplcli", *command.split()]
        told = {**os.environ, **surroundings, "PYTHONPATH": str(SAMPLES.parent), "PYTHONUTF8": "1"}
        done = subprocess.run(asked, env=told, capture_output=True, check=False, timeout=60)  # noqa: S603  # our own program
        ended = str(done.returncode).encode()
        return {"exit code": ended, "stdout": done.stdout, "stderr": done.stderr}
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, surroundings),
        mock.patch.object(sys, "argv", ["dpl", *command.split()]),
        mock.patch.multiple(
            "dplcli.report.document", version_of=lambda _package: "any", __version__="any"
        ),
        mock.patch("dplcli.report.json.__version__", "any"),
        mock.patch("dplcli.cli.options.perf_counter", return_value=0.0),
        mock.patch("platform.python_version", return_value="any"),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        for name in ("GITHUB_STEP_SUMMARY", "FORCE_COLOR"):
            os.environ.pop(name, None)
        code: object = 0
        try:
            run(dpl)
        except SystemExit as end:
            code = end.code
    return {
        "exit code": str(code).encode(),
        "stdout": out.getvalue().encode(),
        "stderr": err.getvalue().encode(),
    }


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _without_numbers(command: str, part: str, data: bytes) -> bytes:
    """Return what is recorded of *data*: of a measuring command, no numbers, plots and spaces."""
    if not command.startswith(MEASURING) or part == "exit code" or part.endswith(".onnx"):
        return data
    if part.endswith((".npz", ".pb")):
        return b"values"
    drawn = re.sub(r"<svg.*?</svg>", "a plot", data.decode(), flags=re.DOTALL)
    text = re.sub(r"-?\d+(,\d{3})*(\.\d+)?(e[-+]?\d+)?( %)?(?![\w-])|[▁-█][▁-█ ]*", "#", drawn)
    return " ".join(text.split()).encode()


def _without_weights(data: bytes) -> bytes:
    """Return the model *data* without the numbers of its float initializers."""
    model = ModelProto.FromString(data)
    for weight in model.graph.initializer:
        if weight.data_type == TensorProto.FLOAT:
            weight.ClearField("raw_data")
    emptied: bytes = model.SerializeToString(deterministic=True)
    return emptied


def _store(folder: Path, left: dict[str, bytes]) -> None:
    for name, data in left.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def versions() -> dict[str, str]:
    """Return what has a say in the bytes: packages, and how the processor computes constants."""
    found = {name: version(name) for name in ("click", "numpy", "onnx", "rich")}
    return found | {"machine": platform.machine()}


def golden() -> dict[str, Answers]:
    """Return what was recorded, by session."""
    recorded: dict[str, Answers] = json.loads(GOLDEN.read_text(encoding="utf-8"))["sessions"]
    return recorded


def recorded_with() -> dict[str, str]:
    """Return the versions of the packages that it was recorded with."""
    found: dict[str, str] = json.loads(GOLDEN.read_text(encoding="utf-8"))["versions"]
    return found


def record(keep: Path | None, names: list[str]) -> None:
    """Run the sessions called *names*, or all, and write ``golden.json``.

    Args:
        keep: A folder for the answers themselves; with it, ``golden.json`` is left alone.
        names: The sessions; none stands for all.
    """
    everything = sessions()
    found = golden() if names and GOLDEN.exists() else {}
    for name in names or everything:
        if not everything[name].model.exists():
            sys.exit(f"{everything[name].model} is not there: the corpus is needed to record")
        found[name] = answers(everything[name], None if keep is None else keep / name)
        print(name, file=sys.stderr)  # noqa: T201  # a script
    if keep is None:
        text = json.dumps({"versions": versions(), "sessions": found}, indent=1, sort_keys=True)
        GOLDEN.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="SESSION")
    wanted = parser.parse_args()
    record(wanted.keep, wanted.names)
