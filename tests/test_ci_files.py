"""What other repositories use from this one: the GitHub action and the hooks of pre-commit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from ruamel.yaml import YAML

from tests.support.pages import ROOT, Shell

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CATALOGUE = """dpl: 1
target: t
patterns:
  - {name: r, pattern: %s}
"""


def loaded(name: str) -> Any:  # noqa: ANN401  # what a YAML file holds
    """Return what a file of the repository holds."""
    return YAML(typ="safe").load((ROOT / name).read_text(encoding="utf-8"))


@pytest.fixture
def act(tmp_path: Path) -> Callable[[str], tuple[int, Path]]:
    """Return a function that runs the action's script as it is; answers its code and folder."""
    shell = Shell(tmp_path)
    step = loaded("action.yml")["runs"]["steps"][-1]
    bash = shutil.which("bash")
    assert bash is not None

    def run(arguments: str) -> tuple[int, Path]:
        environment = shell.environment | {
            "DPL_ARGUMENTS": arguments,
            "DPL_REPORTS": "reports",
            "GITHUB_STEP_SUMMARY": str(shell.folder / "summary.md"),
            "GITHUB_OUTPUT": str(shell.folder / "output"),
        }
        own = {"words", "code", "options", "report"}
        assert set(re.findall(r"\$(\w+)", step["run"])) - own <= environment.keys()
        script = shell.folder / "script.sh"
        script.write_text(step["run"], encoding="utf-8")
        command = [bash, "--noprofile", "--norc", "-eo", "pipefail", str(script)]  # as there
        done = subprocess.run(  # noqa: S603  # our own script
            command, cwd=shell.folder, env=os.environ | environment, check=False, timeout=120
        )
        return done.returncode, shell.folder

    return run


@pytest.mark.long
@pytest.mark.parametrize(
    ("expected", "code"),
    [pytest.param(">=2", 0, id="passes"), pytest.param(">=3", 1, id="fails")],
)
def test_the_action_runs(act: Callable[[str], tuple[int, Path]], expected: str, code: int) -> None:
    """The step fails as dpl does, and reports are there either way."""
    lines = ["partition sample_models/residual_block.onnx --patterns", "conv_relu"]
    lines += [f"--expect 'dnnl.conv2d_bias_relu{expected}'", "-o 'with a blank.onnx'", ""]

    found, folder = act("\n".join(lines))

    assert found == code
    assert (folder / "output").read_text() == f"exit-code={code}\n"
    assert (folder / "with a blank.onnx").exists() == (code == 0)
    assert (folder / "summary.md").read_text().count("## ") >= 1
    assert (folder / "reports" / "report.html").stat().st_size > 1000
    root = ET.parse(folder / "reports" / "junit.xml").getroot()  # noqa: S314  # our own file
    assert (root.get("failures") == "0") == (code == 0)


@pytest.mark.long
def test_the_action_ends_with_two_where_nothing_can_be_done(
    act: Callable[[str], tuple[int, Path]],
) -> None:
    """A model that is not there is not an answer of no."""
    code, folder = act("partition\nabsent.onnx\n--target\ndnnl\n")

    assert code == 2
    assert (folder / "output").read_text() == "exit-code=2\n"


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments", ["inspect sample_models/residual_block.onnx", "patterns list", "doctor"]
)
def test_the_action_takes_commands_without_reports(
    act: Callable[[str], tuple[int, Path]], arguments: str
) -> None:
    """Only reports that a command has are asked of it."""
    assert act(arguments)[0] == 0


@pytest.mark.long
def test_an_action_with_an_open_quote_does_nothing(
    act: Callable[[str], tuple[int, Path]],
) -> None:
    """The step fails; no other command is run in its place."""
    code, folder = act("partition 'sample_models/residual_block.onnx -p conv_relu")

    assert code != 0
    assert not (folder / "output").exists()


@pytest.mark.long
@pytest.mark.parametrize("hook", loaded(".pre-commit-hooks.yaml"), ids=lambda hook: hook["id"])
def test_a_hook_passes_and_fails(hook: dict[str, str], tmp_path: Path) -> None:
    """Its command is run with the files that changed."""
    shell = Shell(tmp_path)
    (shell.folder / "good.yaml").write_text(CATALOGUE % "Relu(Abs(x))", encoding="utf-8")
    (shell.folder / "bad.yaml").write_text(CATALOGUE % "Relu(Abs(x)", encoding="utf-8")

    assert shell(f"{hook['entry']} good.yaml > out; echo $?") == "0\n"
    assert shell(f"{hook['entry']} good.yaml bad.yaml 2> err; echo $?") == "2\n"
    assert "bad.yaml" in (shell.folder / "err").read_text()


@pytest.mark.parametrize(
    ("path", "is_meant"),
    [
        ("patterns/mine.yaml", True),
        ("tools/rules/a.yml", True),
        ("patterns/mine.examples.yaml", False),
        (".github/workflows/ci.yaml", False),
        ("rules.yaml.txt", False),
    ],
)
def test_hooks_look_at_catalogues_alone(path: str, *, is_meant: bool) -> None:
    """Examples and other YAML are none."""
    for hook in loaded(".pre-commit-hooks.yaml"):
        taken = re.search(hook["files"], path) and not re.search(hook["exclude"], path)
        assert bool(taken) == is_meant
