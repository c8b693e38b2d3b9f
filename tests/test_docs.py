"""The console sessions of the pages in docs/ are run, like the README's.

``python tests/test_docs.py`` writes the real output into the pages.
"""

import json
import re
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
