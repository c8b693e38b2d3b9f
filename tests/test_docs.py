"""The pages show what happens: README.md and all of docs/.

``python tests/test_docs.py [PAGE...]`` writes the real output into the pages.
"""

import doctest
import io
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

import onnx
import onnx.parser
import pytest

ROOT = Path(__file__).parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from dplcli.pipeline.catalogs import load_catalog_rules  # noqa: E402  # see above
from dplcli.version import version_of  # noqa: E402  # see above
from tests.support.pages import FENCE, PAGES, Shell, blocks, replayed, without_rounding  # noqa: E402

REFERENCE = ROOT / "docs" / "reference"
CATALOGUES, LANGUAGE, PYTHON = (REFERENCE / f"{n}.md" for n in ("catalogues", "language", "python"))


PYTORCH, EXPORTER = ROOT / "docs" / "guides" / "pytorch.md", "2.13"


@pytest.mark.long
@pytest.mark.parametrize(
    "page",
    [pytest.param(each, marks=pytest.mark.torch) if each == PYTORCH else each for each in PAGES],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_a_page_shows_what_happens(page: Path, tmp_path: Path) -> None:
    """Every command of the page, run in order, prints what the page says."""
    if page == PYTORCH and not version_of("torch").startswith(EXPORTER):
        pytest.skip(f"PyTorch {EXPORTER} is not installed, whose exports the page shows")
    text = page.read_text(encoding="utf-8")
    assert without_rounding(replayed(text, Shell(tmp_path))) == without_rounding(text)


@pytest.mark.long
def test_the_page_on_python_shows_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every example of the page, run in order, gives what the page says."""
    shutil.copytree(ROOT / "sample_models", tmp_path / "sample_models")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall("(?s)```python\n(.*?)```", text))
    examples = doctest.DocTestParser().get_doctest(code, {}, "docs/reference/python.md", None, None)
    said = io.StringIO()
    done = doctest.DocTestRunner().run(examples, out=said.write)

    assert done.failed == 0, said.getvalue()
    assert done.attempted > 10


def test_the_readme_is_short_and_shows_something() -> None:
    """Whoever wants more finds it in docs/."""
    text = PAGES[0].read_text(encoding="utf-8")
    assert f"{FENCE}console\n$ " in text
    assert len(text.splitlines()) <= 250


LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """Files are there, and headings, too."""
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in path:
            continue
        aim = (page.parent / path).resolve() if path else page
        assert aim.exists(), path
        if anchor:
            titles = re.findall(r"^#+ (.*)$", aim.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}


def test_the_catalogue_shown_loads(tmp_path: Path) -> None:
    """Both of its rules; the file that it includes is not there."""
    text = blocks(CATALOGUES, "yaml")[0]
    path = tmp_path / "rules.yaml"
    path.write_text(re.sub("^include.*\n", "", text, flags=re.MULTILINE), encoding="utf-8")

    assert len(load_catalog_rules([str(path)])) == 2


def test_only_rounding_is_made_equal() -> None:
    """The figures of an output that passes may vary; its verdict, or another line, may not."""
    passed = "logits  all      3.3e-06  4.3e-06       46  0.00012  0.00013  4.1 %  ok"
    varied = "logits  all      2.9e-06  4.1e-06       39  0.00012  0.00012  3.9 %  ok"

    assert without_rounding(passed) == without_rounding(varied)
    assert without_rounding(passed) != without_rounding(varied.replace("ok", "3 differ"))
    assert without_rounding("rule  8  1") != without_rounding("rule  9  1")
    assert without_rounding("y  all  ▇█▇▄  8-15") == without_rounding("y  all  ▇▄  2-3")
    assert without_rounding("y  all  ▇█▇▄  8-15") != without_rounding("z  all  ▇█▇▄  8-15")


def test_the_page_on_kernels_names_every_key_of_the_record(tmp_path: Path) -> None:
    """Nothing in ``dpl.contract/1`` is left unexplained."""
    shell = Shell(tmp_path)
    shell("dpl partition sample_models/residual_block.onnx -p conv_relu -o p.onnx --no-verify -q")
    record = json.loads(shell("dpl inspect p.onnx --contract --json -"))
    page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    table = page.partition("## The record")[2]
    function = record["functions"][0]
    parts = [function["inputs"][0], function["attributes"][0], function["body"][0]]
    keys = set(record) | set(function) | {key for part in parts for key in part}
    named = set(re.findall(r"`(?:functions\[\]\.)?(\w+)(?:\[\])?`", table))

    assert keys - {"schema", "model"} <= named


def test_the_catalogue_in_python_works(tmp_path: Path) -> None:
    """The rule with a function of its own puts the bias of a convolution where it belongs."""
    shell = Shell(tmp_path)
    (shell.folder / "rules.py").write_text(blocks(CATALOGUES, "python")[0], encoding="utf-8")
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g (float[1,1,2,2] x) => (float[1,2,2,2] y)
        <float[2,1,1,1] w = {1, 2}, float[1,2,1,1] b = {3, 4}> { c = Conv (x, w) y = Add (c, b) }"""
    onnx.save(onnx.parser.parse_model(text), shell.folder / "model.onnx")

    shown = shell("dpl rewrite model.onnx --patterns rules.py -o out.onnx --quiet; echo $?")

    assert shown == "0\n"
    assert [node.op_type for node in onnx.load(shell.folder / "out.onnx").graph.node] == ["Conv"]


def test_the_rule_in_python_runs(tmp_path: Path) -> None:
    """The rule made in Python finds what the catalogue would."""
    shell = Shell(tmp_path)
    (shell.folder / "script.py").write_text(blocks(PYTHON, "python")[-1], encoding="utf-8")

    shown = shell(f'PYTHONPATH="{ROOT}" "{sys.executable}" script.py')

    assert shown == "{'dnnl.conv2d_bias_relu': 2}\n"


def test_the_conditions_of_the_language_table_load(tmp_path: Path) -> None:
    """A row that shows a pattern and a condition on it shows two that go together."""
    text = LANGUAGE.read_text(encoding="utf-8")
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
    """Output that belongs to no command is a slip of the author."""
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


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "dplcli"


def test_every_floor_is_drawn() -> None:
    """No package, and no module beside them, is missing in the drawing of the floors."""
    drawing = ARCHITECTURE.partition("```")[2].partition("```")[0]
    drawn = set(re.findall(r"[a-z_]+", drawing))
    rooms = (path for path in PACKAGE.iterdir() if path.suffix in {"", ".py"})
    floors = {path.stem for path in rooms if not path.name.startswith("_")}
    assert floors - {"patterns"} <= drawn


def test_rooms_that_are_named_exist() -> None:
    """``dpl/text`` is a module, ``report/`` a package; none was renamed behind the page's back."""
    named = re.findall(r"`((?:[a-z_]+/)+[a-zA-Z_]*)`", ARCHITECTURE)
    ours = [name for name in named if (PACKAGE / name.partition("/")[0]).is_dir()]
    missing = [
        name
        for name in ours
        if name.rpartition("/")[2] != "NAME"
        and not (PACKAGE / f"{name}.py").is_file()
        and not (PACKAGE / name).is_dir()
    ]
    assert len(ours) > 20
    assert missing == []


if __name__ == "__main__":
    named = [Path(name) for name in sys.argv[1:]]
    for path in named or [page for page in PAGES if page != PYTORCH]:
        with tempfile.TemporaryDirectory() as name:
            told = replayed(path.read_text(encoding="utf-8"), Shell(Path(name)))
        path.write_text(told, encoding="utf-8")
