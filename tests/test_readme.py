"""The README's console sessions are run, and what they show is what happens.

A session is a fenced block marked ``console``. A line ``$ command`` runs in bash (lines that
start with ``> `` continue it); the lines below it are the output, standard error included. All
sessions of the file share one folder, in which ``sample_models/`` lies, and are run in order.

``python tests/test_readme.py`` writes the real output into the README.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import onnx.parser
import pytest

from dplcli.pipeline.catalogs import load_catalog_rules

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
FENCE = "```"
NOT_RUN = ("pip ", "python -m pip ", "python -m venv ", "python3 -m venv ")
TIMEOUT = 300  # seconds for one command

ROUNDING = re.compile(r"^(\S+\s+(?:disable|basic|extended|all))\s[\s\d.e+%-]+(?=ok$)")
SPREAD = re.compile(r"^(\S+\s+(?:disable|basic|extended|all))\s[\s▁▂▃▄▅▆▇█]+\s[\d,e+-]+$")

Runner = Callable[[str], str]


def replayed(text: str, run: Runner) -> str:
    """Return *text* with the output of each command of its console blocks replaced by *run*'s."""
    lines: list[str] = []
    rest = iter(text.splitlines())
    for line in rest:
        lines.append(line)
        if line.strip() == f"{FENCE}console":
            lines += _replayed_block(_until_fence(rest), run)
            lines.append(FENCE)
    return "\n".join(lines) + "\n"


def _until_fence(lines: Iterator[str]) -> list[str]:
    """Return the lines up to the closing fence, which is consumed."""
    block: list[str] = []
    for line in lines:
        if line.strip() == FENCE:
            return block
        block.append(line)
    pytest.fail("README.md: a console block is not closed")


def _replayed_block(block: list[str], run: Runner) -> Iterator[str]:
    """Yield the lines of one console block with real output."""
    while block:
        command, shown, block = _first_command(block)
        yield from command
        script = "\n".join(line[2:] for line in command)
        if script.startswith(NOT_RUN):
            yield from shown
        else:
            yield from tidy(run(script))


def _first_command(block: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Split *block* into its first command, the output shown below that, and the rest."""
    assert block[0].startswith("$ "), f"a console block starts with '$ ', not {block[0]!r}"
    end = 1
    while end < len(block) and block[end].startswith("> "):
        end += 1
    following = end
    while following < len(block) and not block[following].startswith("$ "):
        following += 1
    return block[:end], block[end:following], block[following:]


def tidy(output: str) -> list[str]:
    """Return the lines of *output* without trailing white space or empty lines at the end."""
    return [line.rstrip() for line in output.rstrip().splitlines()]


class Shell:
    """Runs commands as a reader of the README would, in *folder*; ``$?`` carries over."""

    def __init__(self, folder: Path) -> None:
        """Lay out *folder* and find the ``dpl`` that belongs to this interpreter."""
        self.folder = folder / "work"
        self.folder.mkdir()
        shutil.copytree(ROOT / "sample_models", self.folder / "sample_models")
        scripts = Path(sysconfig.get_path("scripts"))
        if shutil.which("dpl", path=str(scripts)) is None:
            scripts = _script_for_the_source_tree(folder)
        path = os.pathsep.join([str(scripts), str(Path(sys.executable).parent), os.environ["PATH"]])
        fixed = {"COLUMNS": "100", "LINES": "50", "NO_COLOR": "1", "TERM": "dumb", "PATH": path}
        self.environment = os.environ | fixed
        for name in ("FORCE_COLOR", "PYTHONPATH", "PYTHONWARNINGS"):
            self.environment.pop(name, None)
        self.status = 0

    def __call__(self, command: str) -> str:
        """Return what *command* writes to standard output and standard error."""
        done = subprocess.run(  # noqa: S603  # the README is ours
            [shutil.which("bash") or "bash", "-c", f"(exit {self.status})\n{command}"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=TIMEOUT,
            check=False,
        )
        self.status = done.returncode
        return done.stdout


def _script_for_the_source_tree(folder: Path) -> Path:
    """Return a folder with a ``dpl`` that runs this checkout, for when none is installed."""
    scripts = folder / "bin"
    scripts.mkdir()
    dpl = scripts / "dpl"
    dpl.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m dplcli "$@"\n')
    dpl.chmod(0o755)
    return scripts


@pytest.mark.long
def test_readme_shows_what_happens(tmp_path: Path) -> None:
    """Every command of the README, run in order, prints what the README says."""
    assert README.exists(), "README.md is missing"
    text = README.read_text(encoding="utf-8")
    assert f"{FENCE}console\n$ " in text, "README.md has no console block to run"
    assert without_rounding(replayed(text, Shell(tmp_path))) == without_rounding(text)


def without_rounding(text: str) -> list[str]:
    """Return the lines of *text*, differences from rounding alone made equal.

    How far two sums of the same terms are apart depends on the processor; that the verdict is
    ``ok`` does not.
    """
    return [SPREAD.sub(r"\1 …", ROUNDING.sub(r"\1 …", line)) for line in tidy(text)]


def test_only_rounding_is_made_equal() -> None:
    """The figures of an output that passes may vary; its verdict, or another line, may not."""
    passed = "logits  all      3.3e-06  4.3e-06       46  0.00012  0.00013  4.1 %  ok"
    varied = "logits  all      2.9e-06  4.1e-06       39  0.00012  0.00012  3.9 %  ok"

    assert without_rounding(passed) == without_rounding(varied)
    assert without_rounding(passed) != without_rounding(varied.replace("ok", "3 differ"))
    assert without_rounding("rule  8  1") != without_rounding("rule  9  1")
    assert without_rounding("y  all  ▇█▇▄  8-15") == without_rounding("y  all  ▇▄  2-3")
    assert without_rounding("y  all  ▇█▇▄  8-15") != without_rounding("z  all  ▇█▇▄  8-15")


def python_blocks() -> list[str]:
    """Return the Python of the README, block by block."""
    parts = README.read_text(encoding="utf-8").split(f"{FENCE}python\n")[1:]
    return [part.partition(FENCE)[0] for part in parts]


def test_the_python_catalogue_of_the_readme_works(tmp_path: Path) -> None:
    """The rule with a function of its own puts the bias of a convolution where it belongs."""
    shell = Shell(tmp_path)
    (shell.folder / "rules.py").write_text(python_blocks()[0], encoding="utf-8")
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g (float[1,1,2,2] x) => (float[1,2,2,2] y)
        <float[2,1,1,1] w = {1, 2}, float[1,2,1,1] b = {3, 4}> { c = Conv (x, w) y = Add (c, b) }"""
    onnx.save(onnx.parser.parse_model(text), shell.folder / "model.onnx")

    shown = shell("dpl rewrite model.onnx --patterns rules.py -o out.onnx --quiet; echo $?")

    assert shown == "0\n"
    assert [node.op_type for node in onnx.load(shell.folder / "out.onnx").graph.node] == ["Conv"]


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    """The rule made in Python finds what the README's catalogue would."""
    shell = Shell(tmp_path)
    (shell.folder / "script.py").write_text(python_blocks()[-1], encoding="utf-8")

    shown = shell(f'PYTHONPATH="{ROOT}" "{sys.executable}" script.py')

    assert shown == "{'dnnl.conv2d_bias_relu': 2}\n"


def test_the_conditions_of_the_language_table_load(tmp_path: Path) -> None:
    """A row that shows a pattern and a condition on it shows two that go together."""
    text = README.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]*)`[^|]*\|.*`where: (\[[^`]*\])`", text, re.MULTILINE)
    assert rows
    for number, (pattern, where) in enumerate(rows):
        rule = f"name: r, pattern: '{pattern}', where: {where}"
        path = tmp_path / f"{number}.yaml"
        path.write_text(f"dpl: 1\ntarget: t\npatterns:\n  - {{{rule}}}\n", encoding="utf-8")

        assert len(load_catalog_rules([str(path)])) == 1


SAMPLE = """\
# Title

```console
$ pip install dplcli
anything
$ say one
old
$ say two \\
> three
```

```bash
$ not run
```
"""


def test_only_the_output_below_commands_is_replaced() -> None:
    """Prose, other blocks and installation commands stay; continued lines are one command."""
    seen: list[str] = []

    def run(command: str) -> str:
        seen.append(command)
        return "new  \n\nnew too\n\n"

    assert replayed(SAMPLE, run) == SAMPLE.replace("old", "new\n\nnew too").replace(
        "> three", "> three\nnew\n\nnew too"
    )
    assert seen == ["say one", "say two \\\nthree"]


def test_a_text_that_shows_the_truth_is_a_fixpoint() -> None:
    """Replaying a replayed text changes nothing."""
    once = replayed(SAMPLE, lambda command: f"ran {command.split()[0]}\n")
    assert replayed(once, lambda command: f"ran {command.split()[0]}\n") == once != SAMPLE


def test_a_block_without_a_prompt_is_an_error() -> None:
    """Output that belongs to no command is a slip of the README's author."""
    with pytest.raises(AssertionError, match="starts with"):
        replayed("```console\nstray\n```\n", lambda _: "")


def test_an_open_block_is_an_error() -> None:
    """A forgotten fence would swallow the rest of the file."""
    with pytest.raises(pytest.fail.Exception, match="not closed"):
        replayed("```console\n$ say one\n", lambda _: "")


def test_the_shell_is_a_readers_shell(tmp_path: Path) -> None:
    """Files stay between commands, errors are shown, the exit code carries over, width is fixed."""
    shell = Shell(tmp_path)
    assert shell("echo kept > file; echo out; echo err >&2; exit 3") == "out\nerr\n"
    assert shell("echo $?; cat file; echo $COLUMNS $NO_COLOR") == "3\nkept\n100 1\n"
    assert shell("ls sample_models/residual_block.onnx") == "sample_models/residual_block.onnx\n"
    assert Path(shell("command -v dpl").strip()).name == "dpl"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        README.write_text(
            replayed(README.read_text(encoding="utf-8"), Shell(Path(name))), encoding="utf-8"
        )
