"""What is wrong in a catalogue: file, line, column, a caret in the right place, and advice."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.catalog import read_catalogs
from dplcli.errors import CatalogError
from tests.support.helpers import SCHEMAS

HEAD = "dpl: 1\ntarget: t\npatterns:\n"
RULE = HEAD + "  - name: r\n"
RELU = "did you mean 'Relu'?"
ROOT = Path(__file__).parents[2]


def failure(folder: Path, text: str | bytes) -> CatalogError:
    """Return the error that loading *text* raises."""
    path = folder / "c.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CatalogError) as caught:
        read_catalogs([str(path)], SCHEMAS)
    return caught.value


def pointed_at(error: CatalogError) -> tuple[int, int, str]:
    """Return line and column of the message, and the text that its caret points at."""
    first, shown, caret = error.message.split("\n")[-3:]
    _, line, column, _ = first.split(":", 3)
    assert caret.strip() == "^"
    return int(line), int(column), shown[caret.index("^") :]


@pytest.mark.parametrize(
    ("text", "line", "points_at", "hint"),
    [
        (RULE + "    pattern: Rleu(x)\n", 5, "Rleu(x)", RELU),
        (
            RULE + "    pattern: Abs(x)\n    replacement: x\n",
            6,
            "replacement: x",
            "a rule that replaces stands under rewrites:, not under patterns:",
        ),
        (RULE + '    pattern: "Rleu(x)"\n', 5, 'Rleu(x)"', RELU),
        (HEAD + "  - {name: r, pattern: 'Rleu(x)'}\n", 4, "Rleu(x)'}", RELU),
        (HEAD + "  - {name: r, pattern: Rleu(x)}\n", 4, "Rleu(x)}", RELU),
        (RULE + "    pattern: Neg(Rleu(x))\n", 5, "Rleu(x))", RELU),
        (
            RULE + "    pattern: |\n      a = Neg(x)\n      Rleu(a)\n",
            7,
            "Rleu(a)",
            RELU,
        ),
        (
            RULE + "    pattern: |-  # why\n        a = Rleu(x)\n        Neg(a)\n",
            6,
            "Rleu(x)",
            RELU,
        ),
        (
            RULE + "    pattern: |\n\n      Rleu(x)\n",
            7,
            "Rleu(x)",
            RELU,
        ),
        (
            RULE + "    pattern: &p |\n      Rleu(x)\n",
            6,
            "Rleu(x)",
            RELU,
        ),
        (
            RULE + '    pattern: "a = Neg(x)\\nRleu(a)"\n    doc: d\n',
            5,
            'Rleu(a)"',
            RELU,
        ),
        (
            RULE + "    pattern: Relu(x)\n    where: [y.rank == 1]\n",
            6,
            "y.rank == 1]",
            None,
        ),
        (
            RULE + "    pattern: Relu(x)\n    where:\n      - x.rank == 1\n      - x.rank == yy\n",
            8,
            "yy",
            None,
        ),
        (
            RULE + "    pattern: repeat(Add, x, k)\n    where: [x.rank == k.rank]\n",
            6,
            "k.rank]",
            None,
        ),
        (
            "dpl: 1\nrewrites: [{name: r, pattern: 'repeat(Add, x, k)', replacement: 'Neg(k)'}]\n",
            2,
            "k)'}]",
            None,
        ),
        (
            "dpl: 1\nrewrites:\n - {name: r, pattern: Neg(é), replacement: 'Mul(é, const(yy))'}\n",
            3,
            "yy))'}",
            None,
        ),
        (
            RULE + "    pattern: Relu(x)\n    where: ['  x.rank == yy']\n",
            6,
            "yy']",
            None,
        ),
        (
            RULE + "    patern: Relu(x)\n",
            5,
            "patern: Relu(x)",
            "did you mean 'pattern'?",
        ),
        ("dpl: 1\ntraget: t\npatterns: []\n", 2, "traget: t", "did you mean 'target'?"),
        (HEAD + "  - name: 1r\n    pattern: Relu(x)\n", 4, "name: 1r", None),
        (
            RULE + "    pattern: Relu(x)\n    constants: inline\n",
            6,
            "constants: inline",
            None,
        ),
        (RULE + "    pattern: Relu(x)\n    where: x.rank == yy\n", 6, "yy", None),
        (RULE + "    pattern: Relu(x)\n    where: |\n      x.rank == yy\n", 7, "yy", None),
        (
            RULE + "    pattern: Relu(x)\n    where: [x.shape[0] > 1, x.rank == 2]\n",
            6,
            "> 1, x.rank == 2]",
            "put it in quotes: ['x.shape[0] > 1', 'x.rank == 2']",
        ),
        (
            RULE + "    pattern: Relu(x)\n    where:\n      - [0, 1] == x.shape\n",
            7,
            "== x.shape",
            "put it in quotes: '[0, 1] == x.shape'",
        ),
        (
            RULE + "    pattern: Relu(x)\n    where: [x.rank == 2, (x.rank]\n",
            6,
            "(x.rank]",
            None,
        ),
        (RULE + "    name: s\n    pattern: Relu(x)\n", 5, "name: s", None),
        ("dpl: 2\ntarget: t\npatterns: []\n", 1, "dpl: 2", None),
        ("dpl: 1\ntarget: t\npatterns:\n\t- name: r\n", 4, "\t- name: r", None),
    ],
)
def test_caret_points_at_the_culprit(
    tmp_path: Path, text: str, line: int, points_at: str, hint: str | None
) -> None:
    """Line, column and caret agree and point at what is wrong, in every YAML style."""
    error = failure(tmp_path, text)
    found_line, column, rest = pointed_at(error)
    assert (found_line, rest) == (line, points_at)
    assert text.split("\n")[line - 1][column - 1 :] == points_at
    if hint is not None:
        assert error.hint == hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing",
        "- a\n- b",
        "just text",
        "42",
        "null",
        "[1, 2",
        "a: b: c",
        "dpl: 1",
        "dpl: 1\ntarget: t\npatterns:",
        "dpl: 1\ntarget: t\npatterns: {}",
        "dpl: 1\ntarget: t\npatterns: text",
        "dpl: 1\ntarget: t\npatterns: [text]",
        "dpl: 1\ntarget: t\npatterns: [[]]",
        "dpl: 1\ntarget: t\npatterns: [null]",
        "dpl: 1\ntarget: t\npatterns: [{}]",
        "dpl: '1'\ntarget: t\npatterns: []",
        "dpl: true\ntarget: t\npatterns: []",
        "dpl: 1.5\ntarget: t\npatterns: []",
        "dpl: 1\ntarget: 5\npatterns: []",
        "dpl: 1\ntarget: a b\npatterns: []",
        "dpl: 1\ntarget: ''\npatterns: []",
        "dpl: 1\ntarget: a..b\npatterns: []",
        "dpl: 1\ntarget: [t]\npatterns: []",
        HEAD + "  - {name: r, pattern: 5}",
        HEAD + "  - {name: r, pattern: null}",
        HEAD + "  - {name: r, pattern: ''}",
        HEAD + "  - {name: r, pattern: [Relu(x)]}",
        HEAD + "  - {name: r, pattern: 2024-01-01}",
        HEAD + "  - {name: [r], pattern: Relu(x)}",
        HEAD + "  - {name: r, pattern: Relu(x), where: [5]}",
        HEAD + "  - {name: r, pattern: Relu(x), where: {a: b}}",
        HEAD + "  - {name: r, pattern: Relu(x), attrs: [a]}",
        HEAD + "  - {name: r, pattern: Relu(x), attrs: {a: 1}}",
        HEAD + "  - {name: r, pattern: Relu(x), attrs: {1: a}}",
        HEAD + "  - {name: r, pattern: Relu(x), attrs: {a: = y.value}}",
        HEAD + "  - {name: r, pattern: Relu(x), attrs: {a: = 1 +}}",
        HEAD + "  - {name: r, pattern: Relu(x), escape: copy}",
        HEAD + "  - {name: r, pattern: Relu(x), order: random}",
        HEAD + "  - {name: r, pattern: Relu(x), priority: true}",
        HEAD + "  - {name: r, pattern: Relu(x), priority: high}",
        "dpl: 1\ntarget: t\npriority: 1.5\npatterns: []",
        HEAD + "  - {name: r, pattern: Relu(x), 5: 6}",
        HEAD + "  - {name: r, pattern: Relu(x), [a]: 6}",
        HEAD + "  - {name: r, pattern: Relu(x), {a: b}: 6}",
        HEAD + "  - {name: r, pattern: Relu(x), null: 6}",
        "---\ndpl: 1\n---\ndpl: 1\n",
        "dpl: *nowhere\n",
        "dpl: !!python/object/apply:os.system ['true']\ntarget: t\npatterns: []",
        "dpl: 1\ntarget: t\npatterns: &a [*a]\n",
        "&a {dpl: 1, target: t, patterns: [*a]}\n",
        pytest.param(
            "dpl: 1\ntarget: t\npatterns: " + "[" * 3000 + "]" * 3000, marks=pytest.mark.long
        ),
        "dpl: 1\ntarget: \x01\npatterns: []",
        b"dpl: 1\ntarget: \xff\xfe\npatterns: []",
        b"\xff\xfed\x00p\x00l\x00",
        b"\0\0\0\0",
    ],
)
def test_every_malformed_file_is_one_kind_of_error(tmp_path: Path, text: str | bytes) -> None:
    """Whatever the file holds, loading it raises the catalogue's error and names the file."""
    assert "c.yaml" in failure(tmp_path, text).message


def test_a_target_may_not_be_the_standard_domain(tmp_path: Path) -> None:
    """Functions of ai.onnx would replace the standard's own operators."""
    failure(
        tmp_path, HEAD.replace("target: t", "target: ai.onnx") + "  - {name: r, pattern: Relu(x)}"
    )


def test_unreadable_places(tmp_path: Path) -> None:
    """A directory or a missing file is the catalogue's error."""
    for path in (tmp_path, tmp_path / "missing.yaml"):
        with pytest.raises(CatalogError):
            read_catalogs([str(path)], SCHEMAS)


CHILD = """
import resource, sys, pathlib
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
from dplcli.catalog import read_catalogs
from dplcli.errors import CatalogError
from dplcli.onnx_io import OnnxSchemas
try:
    read_catalogs([sys.argv[1]], OnnxSchemas())
except CatalogError:
    print("refused")
"""


@pytest.mark.parametrize("as_mapping", [False, True])
def test_a_bomb_of_aliases_is_refused_quickly(tmp_path: Path, *, as_mapping: bool) -> None:
    """Aliases of aliases (a billion laughs) end in an error, not in all the memory."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 10):
        items = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} [{items}]")
    text = "\n".join(["dpl: 1", "target: t", *lines, "patterns: *a9"])
    if as_mapping:
        text = dedent(text).replace("patterns: *a9", "patterns: [{name: *a9, pattern: *a8}]")
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", CHILD, str(path)]
    result = subprocess.run(  # noqa: S603  # our own interpreter and program
        command, cwd=ROOT, timeout=60, capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "refused", result.stderr[-300:]


@pytest.mark.long
@given(st.integers(0, 200), st.sampled_from([*"[]{}:,&*!|>'\"%@`#-? \t\n\0", "\u2028", "é", "- "]))
def test_any_inserted_character_loads_or_is_refused(tmp_path: Path, at: int, what: str) -> None:
    """A catalogue with one character too many loads or raises the catalogue's error."""
    text = (
        HEAD
        + "  - name: r\n    pattern: |\n      a = Neg(x)\n      Relu(a)\n    where: [x.rank == 1]\n"
    )
    at %= len(text)
    path = tmp_path / "c.yaml"
    path.write_text(text[:at] + what + text[at:], encoding="utf-8")
    try:
        read_catalogs([str(path)], SCHEMAS)
    except CatalogError as error:
        message = error.message
    else:
        message = "c.yaml"
    assert "c.yaml" in message
