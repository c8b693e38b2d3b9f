"""The help: complete, and quick because nothing heavy is loaded for it."""

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import click
import pytest

from dplcli import __version__
from dplcli.cli.main import COMMANDS, command_named
from dplcli.cli.main import dpl as group
from dplcli.settings import ComparingSettings
from dplcli.verify.check import LEVELS, Check
from tests.cli.support import ROOT, Dpl

LIST_IMPORTS = """
import sys
from dplcli.cli.main import main
heavy = {"numpy", "onnx", "onnxruntime", "pydantic", "ruamel", "rich"}
try:
    main()
except SystemExit as done:
    print(done.code, *(heavy & sys.modules.keys()), file=sys.stderr)
"""


def commands() -> list[click.Command]:
    """Return every command as click knows it."""
    return [command_named(name) for name in COMMANDS]


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_overview_lists_every_command(dpl: Dpl, flag: str) -> None:
    """Exit 0, on stdout, with one line of help for each."""
    answer = dpl(flag)

    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("Usage: dpl ")
    assert headings(answer.out)[1:3] == ["Find", "Change"]
    for name, text in COMMANDS.items():
        assert answer.out.count(f"\n  {name} ") == 1
        assert text.split()[0] in answer.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(dpl: Dpl, name: str) -> None:
    """Usage, a sentence, and every option of the command; a missing model does not matter.

    It fits a screen; --help-all says more of every option, if there is more to say.
    """
    answer = dpl(name, "--help")

    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"Usage: dpl {name} ")
    assert len(answer.out.splitlines()) <= 62
    command = command_named(name)
    options = [each for each in command.params if isinstance(each, click.Option)]
    for option in options:
        assert (max(option.opts, key=len) in answer.out) is not option.hidden
    if isinstance(command, click.Group):
        return
    every = dpl(name, "--help-all")
    assert (every.code, every.err) == (0, "")
    told = " ".join(every.out.replace("-\n", "-").split())
    for option in options:
        if not option.hidden:
            words = (option.help or "").replace("- ", "-").split()
            assert " ".join(words[:6]).replace("- ", "-") in told.replace("- ", "-")


@pytest.mark.parametrize("command", commands(), ids=lambda command: str(command.name))
def test_every_option_is_explained(command: click.Command) -> None:
    """Each option's help is there, and ends like a sentence."""
    assert command.help
    for parameter in [*command.params, *group.params]:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.help.endswith("."), parameter.help


def headings(text: str) -> list[str]:
    """Return the headings of a help text."""
    return [line[:-1] for line in text.splitlines() if line.endswith(":") and line[0] != " "]


@pytest.mark.parametrize("name", ["learn", "verify"])
def test_the_help_of_what_is_asked_first_fits_a_screen(
    dpl: Dpl, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Of 45 lines and 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    assert len(dpl(name, "--help").out.splitlines()) <= 45


@pytest.mark.parametrize("flag", ["--help", "--help-all"])
@pytest.mark.parametrize("name", sorted({*COMMANDS} - {"patterns", "kernels"}))
def test_a_command_begins_with_what_is_its_own(dpl: Dpl, name: str, flag: str) -> None:
    """What is printed and how many models are done comes later; --help only names the latter."""
    out = dpl(name, flag).out
    found = headings(out)
    shared = [title for title in found if title in {"What is printed", "Many models", "Options"}]
    own = name not in {"doctor", "schema"}

    assert (found[1 if found[0].startswith("Usage") else 0] not in shared) is own
    assert ("Many models" in found) is (flag == "--help-all" and "--jobs" in out)


@pytest.mark.parametrize(
    "words",
    [*([name] for name in COMMANDS)]
    + [["patterns", name] for name in ("list", "show", "check", "test", "contract", "schema")]
    + [["kernels", "plan"], ["kernels", "build"]],
    ids=" ".join,
)
def test_the_short_flag_is_help_everywhere(dpl: Dpl, words: list[str]) -> None:
    """And an option that does nothing is not offered."""
    answer = dpl(*words, "-h")

    assert (answer.code, answer.out) == (0, dpl(*words, "--help").out)
    assert "No effect" not in answer.out


def test_options_stand_in_named_groups(dpl: Dpl) -> None:
    """What belongs together stands under one heading, and nowhere twice; help comes last."""
    found = headings(dpl("partition", "--help-all").out)

    assert found[:2] == ["Rules", "Policies of rules"]
    assert {"The check", "What the models are fed", "How the candidate is run"} <= set(found)
    assert found[-1] == "Options"
    assert len(found) == len(set(found))
    found = headings(dpl("verify", "--help").out)
    assert (found[0], found[-1]) == ("The check", "More (--help-all)")


NO_OPTION = {
    "seeds": "seed",
    "levels": "level",
    "tolerances": "tolerance",
    "sizes": "shape",
    "request": "inputs",
    "execution": "kernels",
    "whole": "",
    "of_rule": "",
}
"""Fields of a comparison that options say in other words; one is for parts of models."""


def test_every_setting_of_the_check_has_an_option() -> None:
    """A field that is added to it without one fails here."""
    known = {field.name for field in fields(Check)}
    meant = {NO_OPTION.get(name, name) for name in known} - {""}

    assert meant <= ComparingSettings.options.keys()
    assert ComparingSettings.options["level"].choices == LEVELS


@pytest.mark.parametrize("name", ["inspect", "verify"])
def test_help_promises_only_what_the_command_does(dpl: Dpl, name: str) -> None:
    """Neither command looks for matches, so neither can print them."""
    assert "every match" not in dpl(name, "--help").out


def test_the_version_is_printed(dpl: Dpl) -> None:
    """``dpl --version`` names the program and its version."""
    assert dpl("--version").out == f"dpl, version {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["partitoin"]])
def test_nothing_heavy_is_loaded_for_it(arguments: list[str]) -> None:
    """Neither numpy nor onnx nor onnxruntime nor pydantic nor rich: start-up stays short."""
    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", LIST_IMPORTS, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr.splitlines()[-1] in {"0", "2"}


def test_help_takes_less_than_a_third_of_a_second() -> None:
    """0.3 s of a developer's processor; the best of three, and twice that for a busy one."""
    best = min(timed_help() for _ in range(3))

    assert best < 2 * 0.3


def timed_help() -> float:
    """Return how many seconds of the processor ``dpl --help`` takes."""
    start = os.times()
    subprocess.run(  # our own program
        [sys.executable, "-m", "dplcli", "--help"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=200,
    )
    end = os.times()
    spent = end.children_user + end.children_system
    return spent - start.children_user - start.children_system


LOADED = """
import sys
from dplcli.cli.main import main
try:
    main()
finally:
    print("\\n", *sys.modules, file=sys.stderr)
"""
NOT_FOR = {
    "match": {"onnxruntime", "onnx.reference", "jinja2"}
    | {
        f"dplcli.{name}"
        for name in ("verify", "diff", "targets", "catalog.lint", "passes.partition")
    }
    | {
        "dplcli.onnx_io.opset",
        "dplcli.pipeline.rewriting",
        "dplcli.rewrites.simplification",
    },
    "inspect": {"onnxruntime", "onnx.reference", "pydantic", "ruamel.yaml", "jinja2"}
    | {
        f"dplcli.{name}"
        for name in ("verify", "diff", "targets", "catalog.catalog", "pipeline.rules")
    },
    "partition": {"onnxruntime", "onnx.reference", "jinja2"}
    | {f"dplcli.{name}" for name in ("diff", "targets", "verify.equivalence", "catalog.lint")},
}
"""What a command does without."""
COMMANDS_AND_MOST = {
    "match": (("match", "m.onnx", "-p", "conv_relu"), 150),
    "inspect": (("inspect", "m.onnx"), 125),
    "partition": (("partition", "m.onnx", "-p", "conv_relu", "--no-verify", "-o", "o.onnx"), 190),
}


def loaded(folder: Path, code: str, *arguments: str) -> set[str]:
    """Return the modules that a program has loaded at its end."""
    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    return set(done.stderr.splitlines()[-1].split())


def ours(modules: set[str]) -> set[str]:
    """Return those of dpl."""
    return {name for name in modules if name.partition(".")[0] == "dplcli"}


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("command", NOT_FOR)
def test_a_command_loads_what_it_needs(folder: Path, command: str) -> None:
    """Start-up is most of the time of a small model."""
    arguments, most = COMMANDS_AND_MOST[command]

    modules = loaded(folder, LOADED, *arguments)

    assert modules & NOT_FOR[command] == set()
    assert "dplcli.cli.job" in modules
    assert len(ours(modules)) <= most


@pytest.mark.usefixtures("model")
def test_a_catalogue_is_read_once(folder: Path) -> None:
    """The second run has its rules from the cache, and loads nothing that reads YAML."""
    loaded(folder, LOADED, "match", "m.onnx", "--target", "dnnl")
    modules = loaded(folder, LOADED, "match", "m.onnx", "--target", "dnnl")

    assert modules & {"pydantic", "ruamel.yaml", "dplcli.catalog.catalog"} == set()


def test_help_loads_the_command_line_only(folder: Path) -> None:
    """Nothing but what names the commands, and what all that is printed goes through."""
    modules = ours(loaded(folder, LOADED, "--help"))

    assert modules == {
        "dplcli",
        *("dplcli.cli", "dplcli.cli.main", "dplcli.cli.main", "dplcli.cli.printing"),
        *("dplcli.errors", "dplcli.escaping", "dplcli.lazy", "dplcli.version"),
    }


def test_the_front_door_is_opened_without_the_house(folder: Path) -> None:
    """What is behind a name is imported when somebody asks for it."""
    code = "import sys, dplcli.pipeline\nprint(*sys.modules, file=sys.stderr)"

    assert ours(loaded(folder, code)) == {
        *("dplcli", "dplcli.lazy", "dplcli.pipeline", "dplcli.version")
    }


@pytest.mark.long
def test_help_and_schemas_are_the_same_without_docstrings() -> None:
    """``python -OO`` takes docstrings away, from which options have their help."""
    for words in (("verify", "--help"), ("schema", "verify")):
        texts = {
            subprocess.run(  # noqa: S603  # this python
                [sys.executable, *flags, "-m", "dplcli", *words],
                cwd=ROOT,
                capture_output=True,
                check=True,
                timeout=200,
            ).stdout
            for flags in ((), ("-OO",))
        }
        assert len(texts) == 1
