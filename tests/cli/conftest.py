"""The commands as a user meets them: arguments in, streams, exit code and files out."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

from tests.cli.support import ROOT, SAMPLES, Answer, Catalogue, Dpl, Save
from tests.support.calling import exit_code

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, which is the working directory."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def dpl(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Dpl:
    """Return a function that calls dpl in this process, in *folder*; C++ output is seen, too."""
    assert folder.is_dir()
    monkeypatch.delenv("COLUMNS", raising=False)  # test runners set it; a pipe has no width

    def call(*arguments: object) -> Answer:
        capfd.readouterr()
        code = exit_code(monkeypatch, arguments)
        return Answer(code, *capfd.readouterr())

    return call


@pytest.fixture
def dpl_process(folder: Path) -> Dpl:
    """Return a function that calls dpl as a process of its own, in *folder*."""

    def call(*arguments: object, **environment: str) -> Answer:
        done = subprocess.run(  # noqa: S603  # our own program
            [sys.executable, "-m", "dplcli", *map(str, arguments)],
            cwd=folder,
            env={
                "PYTHONPATH": str(ROOT),
                "PATH": "/usr/bin:/bin",
                "DPL_CACHE": os.environ["DPL_CACHE"],
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def model(folder: Path) -> Path:
    """Return a small real net, ``m.onnx``: two Conv-Relu with bias, one Conv with bias."""
    return Path(shutil.copy(SAMPLES / "residual_block.onnx", folder / "m.onnx"))


@pytest.fixture
def save(folder: Path) -> Save:
    """Return a function that writes a model, given as ONNX text or as a message, to a file."""

    def write(source: str | onnx.ModelProto, name: str = "m.onnx") -> Path:
        proto = onnx.parser.parse_model(HEADER + source) if isinstance(source, str) else source
        path = folder / name
        path.write_bytes(proto.SerializeToString())
        return path

    return write


@pytest.fixture
def catalogue(folder: Path) -> Catalogue:
    """Return a function that writes a catalogue of one rule, ``t.r``, with this pattern."""

    def write(pattern: str) -> Path:
        path = folder / "rules.yaml"
        path.write_text(
            f"dpl: 1\ntarget: t\npatterns:\n  - name: r\n    pattern: {pattern}\n",
            encoding="utf-8",
        )
        return path

    return write
