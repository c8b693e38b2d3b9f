"""Conditions, operators and attributes that are wrong are refused when a catalogue is read."""

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from dplcli.catalog import read_catalogs
from dplcli.errors import CatalogError
from dplcli.onnx_io import contrib
from tests.support.helpers import SCHEMAS, describe_refusals, rule, selected

CONV = "conv = Conv(x, const(w))\nRelu(conv)"


def refusal(folder: Path, pattern: str, *conditions: str) -> CatalogError | None:
    """Return why a catalogue with one rule is refused; None if it is not."""
    entry = {"name": "r", "pattern": pattern, "where": list(conditions)}
    path = folder / "c.yaml"
    path.write_text(json.dumps({"dpl": 1, "target": "t", "patterns": [entry]}), encoding="utf-8")
    try:
        read_catalogs([str(path)], SCHEMAS)
    except CatalogError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("pattern", "conditions", "message", "hint"),
    [
        (CONV, ['x.dtype == "flaot32"'], "'flaot32' is not an element type", "'float32'"),
        (CONV, ['x.dtype in ["float32", "floa16"]'], "'floa16' is not", "'float16'"),
        (CONV, ['"imt8" != x.dtype'], "'imt8' is not an element type", "'int8'"),
        (CONV, ['all([not x.dtype == "flot64"])'], "'flot64' is not", "'float64'"),
        (CONV, ['widens(x.dtype, "flaot32")'], "'flaot32' is not", "'float32'"),
        ('Relu(x.has_dtype("flaot32"))', [], "'flaot32' is not", "'float32'"),
        ('Relu(x.has_type("flaot32[n]"))', [], "'flaot32' is not", "'float32'"),
        ('Cast(x, to="flaot32")', [], "'flaot32' is not an element type", "'float32'"),
        ('Relu(is_value([1.0], dtype="flaot32"))', [], "'flaot32' is not", "'float32'"),
        (CONV, ["conv.attrs.grup == 1"], "'grup', which 'conv' does not have", "'group'"),
        ("c = (Conv | MaxPool)(x, ...)\nRelu(c)", ["c.attrs.strode[0] == 1"], "'strode'", ""),
        ("c = com.microsoft.FusedConv(x, w)\nRelu(c)", ["c.attrs.grup == 1"], "'grup'", "group"),
        ("com.microsoft.FusedConv(x, w, grup=1)", [], "no attribute 'grup'", "'group'"),
        ("com.microsoft.Gelo(x)", [], "unknown operator 'com.microsoft.Gelo'", "'Gelu'"),
        ("optional(Relu)(com.microsoft.MatMulNBit(x, ...))", [], "MatMulNBit", "'MatMulNBits'"),
        (CONV, ["9**9 > 1"], "'9**9 > 1' always holds", ""),
        (CONV, ["1 > 2"], "'1 > 2' never holds", ""),
        (CONV, ["x.rank == 4 or 9**9 > 1"], "'9 ** 9 > 1' always holds", ""),
        (CONV, ["9**99 > 1"], "an exponent is larger than 64", ""),
        (CONV, ["1 / 0 == 1"], "it divides by zero", ""),
        (CONV, ["x"], "'x' always holds", ""),
        (CONV, ["x.uses >= 0"], "always holds", ""),
        (CONV, ["x.is_const or not x.is_const"], "always holds", ""),
        (CONV, ["x.rank == 5", "x.rank == 4"], "never holds together with 'x.rank == 5'", ""),
        (CONV, ["len(x.shape) == 3", "x.rank > 3"], "together with 'len(x.shape) == 3'", ""),
        (CONV, ["x.rank > 4 and x.rank < 5"], "never holds", ""),
        (CONV, ["3 < x.rank < 4"], "never holds", ""),
        (CONV, ["x.rank in [3, 4]", "x.rank != 3", "x.rank != 4"], "conditions before it", ""),
        (CONV, ["x.rank == 4 or x.rank == 5", "x.rank == 6"], "together with 'x.rank == 6'", ""),
        (CONV, ["not (x.rank < 4)", "x.rank == 3"], "never holds together", ""),
        (CONV, ['x.dtype == "int8"', 'x.dtype == "int4"'], "never holds together", ""),
        (CONV, ["is_static(x)", "not is_static(x)"], "never holds together", ""),
        (CONV, ["x.rank == 4.5"], "never holds", ""),
        (CONV, [f"x.rank >= 1{0:0400}", "x.rank == 4"], "never holds together", ""),
        (CONV, [f"x.rank < -1{0:0400}", "x.rank > 1e999"], "never holds", ""),
        (CONV, ['x.rank == "4"'], "never holds", ""),
        (CONV, ["x.shape[0] == -1"], "never holds", ""),
        (CONV, ["not w.is_const"], "the pattern says otherwise", ""),
        ("Relu(x.has_rank(4))", ["x.rank == 5"], "the pattern says otherwise", ""),
        ("c = Conv(x, w, group=1)\nRelu(c)", ["c.attrs.group == 2"], "says otherwise", ""),
    ],
)
def test_a_mistake_is_found(
    tmp_path: Path, pattern: str, conditions: list[str], message: str, hint: str
) -> None:
    """The message names file and rule and says what is wrong, the hint what was meant."""
    error = refusal(tmp_path, pattern, *conditions)
    assert error is not None
    assert error.message.startswith("c.yaml:1:")
    assert "rule 'r'" in error.message
    assert message in error.message
    assert hint in (error.hint or "")


@pytest.mark.parametrize(
    ("pattern", "conditions"),
    [
        (CONV, ['x.dtype == "float8e4m3fn"', 'x.dtype != "float32"']),
        (CONV, ['x.name == "flaot32"', 'x.shape[0] == "n"']),
        (CONV, ["conv.attrs.group == 1", "conv.attrs.dilations[0] > 1", "x.attrs.group == 2"]),
        ("c = (Conv | MatMul)(x, w)\nRelu(c)", ["c.attrs.group == 1"]),
        ("c = Clip(x, ...)\nRelu(c)", ["c.attrs.min == 0.0"]),
        ("c = my.own.Conv(x, w)\nRelu(c)", ["c.attrs.gruop == 2"]),
        ("c = op()(x, ...)\nRelu(c)", ["c.attrs.gruop == 2"]),
        ("a | Relu(b)", ["a.rank == 4", "a.rank == 5"]),
        ("Relu(optional(Add)(y, const(b)))", ["y.rank == 4 and b.rank == 0", "b.rank == 1"]),
        ("Relu(x.has_rank(4) | Neg(x))", ["x.rank == 5"]),
        (CONV, ["x.rank >= 0", "x.rank == 4 or x.rank == 5", "x.rank > 4"]),
        (CONV, ["x.rank in range(3, 6)", "x.rank not in [3, 5]"]),
        (CONV, ["w.is_const", "w.value != w.value or w.value > 0"]),
        (CONV, ["not (w.value > 0)", "not (w.value < 0)"]),
        (CONV, ["x.shape[0] == 1", "x.shape[1] == 2", "x.shape[-1] == 3"]),
        (CONV, ["x.shape == (1, 2)", "list(x.shape) == [1, 2]"]),
        (CONV, ["any([x.rank == 4, x.rank == 5])", "all([n > 3 for n in x.shape])"]),
        (CONV, ["depth(conv) % 4 == 0", "depth(conv) % 8 == 4"]),
        ("com.microsoft.Gelu(x)", []),
        ("my.microsoft.Gelo(x, grup=1)", []),
    ],
)
def test_a_near_miss_is_accepted(tmp_path: Path, pattern: str, conditions: list[str]) -> None:
    """What may hold for some match is no mistake."""
    error = refusal(tmp_path, pattern, *conditions)
    assert error is None, error


def test_values_of_a_template_may_settle_a_part(tmp_path: Path) -> None:
    """What is constant only for one combination of values is meant so; a dead rule is not."""
    text = """
dpl: 1
target: t
patterns:
  - name: r_${n}
    for_each: {n: [3, 4]}
    pattern: Relu(x)
    where: ["${n} == 4 or x.rank == 3"]
"""
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    assert len(read_catalogs([str(path)], SCHEMAS).patterns) == 2
    path.write_text(text.replace("or x.rank == 3", "and x.rank == 3"), encoding="utf-8")
    with pytest.raises(CatalogError, match="never holds"):
        read_catalogs([str(path)], SCHEMAS)


MANY = """\
dpl: 1
target: t
patterns:
  - name: first
    pattern: Rleu(x)
    where: x.rnk == 4
  - name: second
    patern: Relu(x)
  - {name: right, pattern: Relu(x), where: x.rank == 4}
  - name: third_${n}
    for_each: {n: [a, b]}
    pattern: com.microsoft.FusedConv(x, w, grup=1)
rewrites:
  - name: fourth
    pattern: Relu(x)
    where: [y.rank == 4, x.rank == 9 and x.rank == 8]
    replacement: com.microsoft.Gelux(x)
"""


def test_all_mistakes_of_a_file_are_said_at_once(tmp_path: Path) -> None:
    """Each has its own line; what a template repeats is said once."""
    path = tmp_path / "c.yaml"
    path.write_text(MANY, encoding="utf-8")
    with pytest.raises(CatalogError) as caught:
        read_catalogs([str(path)], SCHEMAS)
    lines = sorted(int(each.message.split(":")[1]) for each in caught.value.mistakes)
    assert lines == [5, 6, 8, 12, 16]
    assert caught.value.message.startswith("5 mistakes\n")
    assert "did you mean 'pattern'?" in caught.value.message


LINES = """\
dpl: 1
rewrites:
  - name: one
    pattern: |
      a = Rleu(x)
      b = Neg(a, a)
      f = (Mull | Add)
      1 + b
      f(b, Ab(x))
    replacement: x
  - name: two
    pattern: |
      a = Relu(x)
      Neg(a)
    replacement: |
      p = Rleu(x)
      q = Relu(y)
      Add(p, q), z
"""


def test_all_mistakes_of_a_text_are_said_at_once(tmp_path: Path) -> None:
    """One for each line; where what is missing is told already, it is not told again."""
    path = tmp_path / "c.yaml"
    path.write_text(LINES, encoding="utf-8")
    with pytest.raises(CatalogError) as caught:
        read_catalogs([str(path)], SCHEMAS)
    places = [each.message.partition(": ")[0] for each in caught.value.mistakes]
    first = ["c.yaml:5:11", "c.yaml:6:11", "c.yaml:7:12", "c.yaml:8:7"]
    assert places == [*first, "c.yaml:16:11", "c.yaml:17:16"]
    assert "did you mean 'Relu'?" in caught.value.message


def test_mistakes_of_several_files_are_said_at_once(tmp_path: Path) -> None:
    """A file and one that it includes, and another on the command line."""
    for name, more in (("a", ""), ("b", "include: [a.yaml]\n"), ("c", "")):
        text = f"dpl: 1\ntarget: {name}\n{more}patterns: [{{name: r, pattern: Rleu(x)}}]\n"
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(CatalogError) as caught:
        read_catalogs([str(tmp_path / "b.yaml"), str(tmp_path / "c.yaml")], SCHEMAS)
    files = [each.message.partition(":")[0] for each in caught.value.mistakes]
    assert files == ["a.yaml", "b.yaml", "c.yaml"]


def test_a_condition_alone_needs_no_list(tmp_path: Path) -> None:
    """In a rule, and in a fragment."""
    path = tmp_path / "c.yaml"
    path.write_text(
        "dpl: 1\ntarget: t\nfragments: {f: {pattern: Neg(x), where: x.rank == 4}}\n"
        "patterns: [{name: r, pattern: 'Relu(${f})', where: x.uses == 1}]\n",
        encoding="utf-8",
    )
    (found,) = read_catalogs([str(path)], SCHEMAS).patterns
    assert [each.text for each in found.where] == ["x.uses == 1", "x.rank == 4"]


def test_all_operators_of_onnxruntime_are_known() -> None:
    """The lines of the table that are missing are shown, to be copied."""
    installed, written = contrib.installed_operators(), contrib.written_operators()
    missing = [
        f"{name}: {' '.join(sorted(attributes))}"
        for name, attributes in installed.items()
        if not attributes <= written.get(name, frozenset({""}))
    ]
    if version("onnxruntime") == contrib.TABLE_VERSION:
        assert not missing, "\n".join(missing)


@pytest.mark.parametrize("installed", ["0.1", None])
def test_another_onnxruntime_is_asked(
    installed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer one may have operators that the table does not have; a build may be named else."""

    def version_of(name: str) -> str:
        if installed is None:
            raise PackageNotFoundError(name)
        return installed

    monkeypatch.setattr("importlib.metadata.version", version_of)
    monkeypatch.setattr(contrib, "installed_operators", lambda: {"New": frozenset({"wide"})})
    contrib.contrib_operators.cache_clear()
    try:
        assert contrib.contrib_operators() == {"New": frozenset({"wide"})}
    finally:
        contrib.contrib_operators.cache_clear()


@pytest.mark.parametrize(
    "condition",
    [
        "reshape(w.value, (4, 5)).shape == (4, 5)",
        "w.value + [1.0, 2.0] == 3",
        "concat([w.value, [[1.0]]]) == 1",
        "w.value == 1",
        "[[1, 2], [3]] + w.value == 1",
        "x.shape[9] == 1",
        "transpose(w.value, [7]) == 1",
        "int(w.value) == 1",
        "min([]) == w.rank",
        "x.rank / (x.rank - 1) == 1",
        "x.dtype < x.rank",
        "float(w) == 1",
        "squeeze(w.value, [0]) == 1",
        "zip([1], w.value) == 1",
    ],
)
def test_reasons_are_in_plain_words(condition: str) -> None:
    """Nobody needs to know numpy or Python to read why a condition cannot be evaluated."""
    text = "g (float[3] a) => (o) <float[3] k = {1,2,3}> { o = Add (a, k) }"
    (reason,) = describe_refusals(selected(rule("Add(x, const(w))", condition), text))
    said = reason.partition(condition)[2]
    strange = ("numpy", "dtype", "'str'", "'int'", "object", "ndarray", "broadcast", "ambiguous")
    assert "cannot be evaluated: " in said
    assert not any(word in said for word in strange), said
