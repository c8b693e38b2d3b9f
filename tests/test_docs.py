"""The console sessions of the pages in docs/ are run, like the README's.

``python tests/test_docs.py`` writes the real output into the pages.
"""

import doctest
import io
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.test_readme import Shell, replayed, without_rounding  # noqa: E402  # see above

PAGES = sorted((ROOT / "docs").glob("*.md"))


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_happens(page: Path, tmp_path: Path) -> None:
    """Every command of the page, run in order, prints what the page says."""
    text = page.read_text(encoding="utf-8")
    assert without_rounding(replayed(text, Shell(tmp_path))) == without_rounding(text)


@pytest.mark.long
def test_the_page_on_python_shows_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every example of the page, run in order, gives what the page says."""
    shutil.copytree(ROOT / "sample_models", tmp_path / "sample_models")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall("(?s)```python\n(.*?)```", text))
    examples = doctest.DocTestParser().get_doctest(code, {}, "docs/python.md", None, None)
    said = io.StringIO()
    done = doctest.DocTestRunner().run(examples, out=said.write)

    assert done.failed == 0, said.getvalue()
    assert done.attempted > 10


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


if __name__ == "__main__":
    for path in PAGES:
        with tempfile.TemporaryDirectory() as name:
            told = replayed(path.read_text(encoding="utf-8"), Shell(Path(name)))
        path.write_text(told, encoding="utf-8")


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
