"""Catalogues that are code, code that YAML may name, and YAML that wants to be code."""

import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import pytest

from dplcli.catalog import Catalog, read_catalogs
from dplcli.errors import CatalogError, DplError
from dplcli.passes.select import select_matches
from tests.support.calling import exit_code
from tests.support.helpers import (
    SCHEMAS,
    describe_refusals,
    model_from_text,
    proto_from_text,
    taken,
    with_long,
)
from tests.support.strategies import within

Run: TypeAlias = Callable[..., tuple[int, str, str]]
Offer: TypeAlias = Callable[..., None]

HEAD = "dpl: 1\ntarget: t\n"
CHAIN = "g (float[2] x) => (float[2] y) { a = Neg (x) y = Relu (a) }"
RULE = """
from dplcli.language import PatternRule, is_op, wildcard

x = wildcard("x")
def made(name="r"):
    return PatternRule(target="t", name=name, pattern=is_op("Relu")(is_op("Neg")(x)))
"""


@pytest.fixture(autouse=True)
def clean_modules(tmp_path: Path) -> Iterator[None]:
    """Forget the modules of a test's own folder, and its changes to the path.

    No others: a library that were imported twice would have two of each of its classes.
    """
    before, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - before:
        module = sys.modules[name]
        places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
        if any(Path(place).is_relative_to(tmp_path) for place in places):
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that calls dpl beside the model ``m.onnx``: exit code and streams."""
    (tmp_path / "m.onnx").write_bytes(proto_from_text(CHAIN).SerializeToString())
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = exit_code(monkeypatch, arguments)
        return (code, *capfd.readouterr())

    return call


def load(path: Path, *, allow_code: bool = False) -> Catalog:
    """Read one catalogue."""
    return read_catalogs([str(path)], SCHEMAS, allow_code=allow_code)


def refusal(path: Path, *, allow_code: bool = False) -> CatalogError:
    """Check that a catalogue is refused; return the error."""
    with pytest.raises(CatalogError) as caught:
        load(path, allow_code=allow_code)
    return caught.value


def file(folder: Path, text: str, name: str = "rules.yaml") -> Path:
    """Write a file."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# -- catalogues in Python ----------------------------------------------------------------------

LISTS = {
    "list": ("CATALOG = [made()]", ["t.r"]),
    "tuple": ("CATALOG = (made('a'), made('b'))", ["t.a", "t.b"]),
    "one-rule": ("CATALOG = made()", ["t.r"]),
    "empty": ("CATALOG = []", []),
    "dataclass-inside": (
        (
            "from dataclasses import dataclass\n@dataclass\nclass P:\n    n: str = 'r'\n"
            "CATALOG = [made(P().n)]"
        ),
        ["t.r"],
    ),
}


@pytest.mark.parametrize(("text", "names"), LISTS.values(), ids=LISTS)
def test_a_python_catalogue(tmp_path: Path, text: str, names: list[str]) -> None:
    """``CATALOG`` is a list of rules, in order."""
    found = load(file(tmp_path, RULE + text, "rules.py"))

    assert [rule.qualified_name for rule in found.patterns] == names


def test_a_python_catalogue_on_the_command_line(run: Run, tmp_path: Path) -> None:
    """It is executed and its rules match; a broken one is exit 2 with one message."""
    file(tmp_path, f"{RULE}CATALOG = [made()]", "rules.py")
    code, out, _ = run("match", "m.onnx", "-p", "rules.py", "--json", "-")
    assert code == 0
    assert '"t.r": 1' in out

    file(tmp_path, "CATALOG = [1 / 0]", "rules.py")
    code, out, err = run("match", "m.onnx", "-p", "rules.py")
    assert (code, out) == (2, "")
    assert "rules.py: failed with ZeroDivisionError: division by zero (line 1 of rules.py)" in err
    assert "internal error" not in err


BROKEN = {
    "missing": ("rules = [made()]", "defines no CATALOG"),
    "a-number": ("CATALOG = 3", "no list of rules but int"),
    "none": ("CATALOG = None", "no list of rules but NoneType"),
    "a-text": ("CATALOG = 'rules.yaml'", "no list of rules but str"),
    "a-dictionary": ("CATALOG = {'r': made()}", "no list of rules but dict"),
    "a-class": ("CATALOG = [type(made())]", "which is no rule"),
    "a-pattern": ("CATALOG = [is_op('Relu')(x)]", "which is no rule"),
    "raising": ("raise RuntimeError('no mood')", "RuntimeError: no mood"),
    "raising-without-a-word": ("raise RuntimeError", "RuntimeError"),
    "asserting": ("assert False, 'no'", "AssertionError: no"),
    "leaving": ("import sys\nsys.exit(0)", "SystemExit"),
    "syntax": ("CATALOG = [", "SyntaxError"),
    "indentation": ("  CATALOG = []\n x", "IndentationError"),
    "importing": ("import no_such_module_anywhere", "no_such_module_anywhere"),
    "null-byte": ("CATALOG = '\0'", "null bytes"),
    "two-of-one-name": ("CATALOG = [made(), made()]", "two rules are named 't.r'"),
    "bad-pattern": ("CATALOG = [PatternRule(target='t', name='n', pattern=3)]", ""),
    "recursion": ("def f(): f()\nf()", "RecursionError"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_python_catalogue_is_one_error(tmp_path: Path, text: str, message: str) -> None:
    """What is wrong, and in which file."""
    error = refusal(file(tmp_path, RULE + text, "rules.py"))

    assert message in error.message
    assert "rules.py" in error.message or "two rules" in error.message


def test_an_unprintable_rule_is_still_one_error(tmp_path: Path) -> None:
    """An object in CATALOG whose repr fails is no reason to crash."""
    text = "class Bad:\n    def __repr__(self): raise ValueError('no')\nCATALOG = [Bad()]"
    refusal(file(tmp_path, RULE + text, "rules.py"))


def test_a_python_catalogue_that_is_no_text(tmp_path: Path) -> None:
    """Bytes that are no UTF-8."""
    path = tmp_path / "rules.py"
    path.write_bytes(b"\xff\xfe\x00CATALOG")
    refusal(path)


def test_two_python_catalogues_of_one_file_name(tmp_path: Path) -> None:
    """Modules of the same name in two folders are two."""
    one = file(tmp_path, f"{RULE}CATALOG = [made('one')]", "a/rules.py")
    two = file(tmp_path, f"{RULE}CATALOG = [made('two')]", "b/rules.py")
    found = read_catalogs([str(one), str(two), str(one)], SCHEMAS)

    assert [rule.name for rule in found.patterns] == ["one", "two"]


def test_no_bytecode_and_no_module_is_left(tmp_path: Path) -> None:
    """Reading a catalogue leaves the interpreter as it was."""
    before = set(sys.modules)
    load(file(tmp_path, f"{RULE}CATALOG = [made()]", "rules.py"))

    assert not [name for name in set(sys.modules) - before if "catalog_" in name]


# -- catalogues of installed packages ----------------------------------------------------------


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Return a function that installs a package ``acme_rules`` with these entry points."""

    def call(points: str, **files: str) -> None:
        site = tmp_path / "site"
        for name, text in files.items():
            file(site, text, name.replace("__", ".").replace("_SLASH_", "/"))
        info = site / "acme-1.0.dist-info"
        file(info, "Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n", "METADATA")
        file(info, f"[dplcli.catalogs]\n{points}\n", "entry_points.txt")
        monkeypatch.syspath_prepend(site)

    return call


def read_offered(name: str = "acme") -> list[str]:
    """Read a catalogue by name; return its rules."""
    return [rule.qualified_name for rule in read_catalogs([name], SCHEMAS).patterns]


YAML = f"{HEAD}patterns:\n  - name: y\n    pattern: Relu(Neg(x))\n"


def test_a_module_is_offered(offer: Offer) -> None:
    """Its CATALOG counts."""
    offer("acme = acme_rules", acme_rules__py=f"{RULE}CATALOG = [made()]")
    assert read_offered() == ["t.r"]


def test_a_list_is_offered(offer: Offer) -> None:
    """An attribute of a module."""
    offer("acme = acme_rules:mine", acme_rules__py=f"{RULE}mine = [made('m')]")
    assert read_offered() == ["t.m"]


def test_a_function_is_offered(offer: Offer) -> None:
    """It is called."""
    text = f"{RULE}def rules(): return [made('f')]"
    offer("acme = acme_rules:rules", acme_rules__py=text)
    assert read_offered() == ["t.f"]


def test_a_path_is_offered(offer: Offer, tmp_path: Path) -> None:
    """A path, as text or from a function; the file may include what lies beside it."""
    text = "from pathlib import Path\nhere = Path(__file__).parent / 'acme.yaml'\n"
    more = "as_text = str(here)\ndef found(): return here\n"
    included = f"{HEAD}include: [inner/more.yaml]\npatterns: []\n"
    points = "acme = acme_rules:here\nacme2 = acme_rules:as_text\nacme3 = acme_rules:found"
    offer(points, acme_rules__py=text + more, acme__yaml=included)
    file(tmp_path, YAML, "site/inner/more.yaml")

    assert [read_offered(name) for name in ("acme", "acme2", "acme3")] == [["t.y"]] * 3


BROKEN_POINTS = {
    "no-module": ("acme = acme_gone", "", "acme_gone"),
    "no-attribute": ("acme = acme_rules:gone", "", "gone"),
    "no-catalog": ("acme = acme_rules", "", "module"),
    "raising-at-import": ("acme = acme_rules", "raise RuntimeError('no mood')", "no mood"),
    "raising-when-called": ("acme = acme_rules:f", "def f(): raise KeyError('k')", "KeyError"),
    "wants-arguments": ("acme = acme_rules:f", "def f(x): return []", "TypeError"),
    "a-number": ("acme = acme_rules:n", "n = 3", "int"),
    "no-rule-in-the-list": ("acme = acme_rules:n", "n = [3]", "which is no rule"),
    "no-such-file": ("acme = acme_rules:n", "n = '/nowhere/at/all.yaml'", "/nowhere/at/all.yaml"),
    "leaving": ("acme = acme_rules", "import sys; sys.exit(0)", "SystemExit"),
}


@pytest.mark.parametrize(("points", "text", "message"), BROKEN_POINTS.values(), ids=BROKEN_POINTS)
def test_a_broken_offer_is_one_error(offer: Offer, points: str, text: str, message: str) -> None:
    """It names the entry point and what is wrong."""
    offer(points, acme_rules__py=text)
    with pytest.raises(CatalogError) as caught:
        read_offered()

    assert message in caught.value.message
    assert "acme" in caught.value.message or "/nowhere" in caught.value.message


@pytest.mark.long
def test_a_list_is_not_run_to_be_listed(run: Run, offer: Offer, tmp_path: Path) -> None:
    """``dpl patterns list`` names what packages offer, and imports nothing of theirs."""
    proof = tmp_path / "proof"
    offer("acme = acme_rules", acme_rules__py=f"open({str(proof)!r}, 'w').close()")
    code, out, _ = run("patterns", "list")

    assert code == 0
    assert "acme" in out
    assert not proof.exists()


@pytest.mark.long
def test_a_broken_package_harms_nobody_else(run: Run, offer: Offer) -> None:
    """Other catalogues work while an installed one is broken; a file goes before an offer."""
    offer("acme = acme_gone\ndnnl = acme_gone")
    assert run("match", "m.onnx", "-p", "conv_relu")[0] == 0
    assert run("patterns", "list")[0] == 0


def test_an_offer_does_not_replace_what_dpl_ships(run: Run, offer: Offer) -> None:
    """``--target dnnl`` means dpl's own catalogue whatever is installed."""
    offer("dnnl = acme_rules", acme_rules__py=f"{RULE}CATALOG = [made('stolen')]")
    expected = ("--expect", "dnnl.conv2d_bias_relu==0")
    assert run("match", "m.onnx", "--target", "dnnl", *expected)[0] == 0

    code, _, error = run("match", "m.onnx", "--target", "dnnl", "--expect", "dnnl.stolen==0")
    assert code == 2
    assert "there is no rule 'dnnl.stolen'" in error


def test_a_file_goes_before_an_offer(offer: Offer, tmp_path: Path) -> None:
    """A path that exists is a path."""
    offer("acme = acme_rules", acme_rules__py=f"{RULE}CATALOG = [made()]")
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        file(tmp_path, YAML, "acme")
        assert read_offered() == ["t.y"]
    finally:
        os.chdir(before)


# -- check: module:function --------------------------------------------------------------------


def checked(folder: Path, body: str, module: str = "acme_checks") -> Path:
    """Write a catalogue with a check, and the module of the check."""
    file(folder, textwrap.dedent(body), f"{module}.py")
    return file(folder, f"{YAML}    check: '{module}:judge'\n")


def test_a_check_is_not_imported_without_leave(run: Run, tmp_path: Path) -> None:
    """Exit 2; the message names rule, check and flag; the module has not run."""
    proof = tmp_path / "proof"
    path = checked(tmp_path, f"open({str(proof)!r}, 'w').close()\ndef judge(match): pass")
    for command in (
        ("match", "m.onnx", "-p", path),
        ("explain", "m.onnx", "-p", path),
        ("partition", "m.onnx", "-p", path, "-o", "out.onnx"),
        ("patterns", "show", path),
        ("patterns", "check", path),
        ("patterns", "test", path),
    ):
        code, out, err = run(*command)
        assert (code, out) == (2, ""), command
        for word in ("rules.yaml:6:", "'y'", "'acme_checks:judge'", "--allow-code"):
            assert word in err
        assert not proof.exists()
        assert not (tmp_path / "out.onnx").exists()
        assert "acme_checks" not in sys.modules

    assert run("match", "m.onnx", "-p", path, "--allow-code")[0] == 0
    assert proof.exists()


def test_a_check_that_agrees(tmp_path: Path) -> None:
    """None is a yes; it sees the match."""
    path = checked(
        tmp_path,
        """
        def judge(match):
            assert match.bindings["x"].name == "x"
            assert [node.op_type for node in match.nodes] == ["Neg", "Relu"]
        """,
    )
    selection = select_matches(model_from_text(CHAIN), load(path, allow_code=True).patterns)
    assert taken(selection) == ["y: a, y"]


@pytest.mark.parametrize(
    ("where", "at"),
    [("", "y"), (", at=match.bindings['x']", "x"), (", at=match.nodes[0]", "a")],
)
def test_a_check_that_refuses(tmp_path: Path, where: str, at: str) -> None:
    """The reason and the place are in the refusal."""
    path = checked(tmp_path, f"def judge(match): return match.reject('no taste'{where})")
    selection = select_matches(model_from_text(CHAIN), load(path, allow_code=True).patterns)

    assert taken(selection) == []
    assert describe_refusals(selection) == ["y at y: check: no taste"]
    found = selection.refused[0].at
    assert found is not None
    assert at in {getattr(found, "name", ""), getattr(found, "label", "")}


WRONG_ANSWERS = {
    "false": "return False",
    "true": "return True",
    "text": "return 'no'",
    "the-match": "return match",
    "raising": "raise RuntimeError('no mood')",
    "key-error": "return match.bindings['nope']",
    "type-error": "return match.nope",
    "leaving": "import sys; sys.exit(0)",
    "recursion": "return judge(match)",
}


@pytest.mark.parametrize("body", WRONG_ANSWERS.values(), ids=WRONG_ANSWERS)
@pytest.mark.parametrize("command", ["match", "explain", "partition"])
def test_a_check_that_answers_nonsense(run: Run, tmp_path: Path, command: str, body: str) -> None:
    """Exit 2 with one message that names the rule; never taken for a yes or a no."""
    path = checked(tmp_path, f"def judge(match):\n    {body}")
    output = ("-o", "out.onnx") if command == "partition" else ()
    code, out, err = run(command, "m.onnx", "-p", path, "--allow-code", *output)

    assert (code, out) == (2, "")
    assert "internal error" not in err
    assert "'t.y'" in err
    assert not (tmp_path / "out.onnx").exists()


BAD_CHECKS = {
    "no-module": ("acme_gone:judge", "acme_gone"),
    "no-function": ("acme_checks:gone", "no function 'gone'"),
    "no-callable": ("acme_checks:number", "no function 'number'"),
    "no-colon": ("acme_checks.judge", "check"),
    "two-colons": ("acme_checks:judge:x", "check"),
    "expression": ("acme_checks:judge()", "check"),
    "relative": ("..acme_checks:judge", "check"),
    "slash": ("acme/checks:judge", "check"),
    "trailing-dot": ("acme_checks.:judge", ""),
    "double-dot": ("acme..checks:judge", ""),
}


@pytest.mark.parametrize(("reference", "message"), BAD_CHECKS.values(), ids=BAD_CHECKS)
def test_a_check_that_is_not_there(tmp_path: Path, reference: str, message: str) -> None:
    """One error at the line of the check, with leave or without."""
    file(tmp_path, "number = 3\ndef judge(match): pass", "acme_checks.py")
    path = file(tmp_path, f"{YAML}    check: '{reference}'\n")
    error = refusal(path, allow_code=True)

    assert error.message.startswith("rules.yaml:6:")
    assert message in error.message
    refusal(path)


def test_a_module_that_fails(tmp_path: Path) -> None:
    """An import that raises is a CatalogError with the reason; the path is as before."""
    before = list(sys.path)
    for body in ("raise RuntimeError('no mood')", "def (", "import sys; sys.exit(3)"):
        error = refusal(checked(tmp_path, body), allow_code=True)
        assert error.message.startswith("rules.yaml:6:")
        sys.modules.pop("acme_checks", None)
    assert sys.path == before


def test_checks_of_one_name_in_two_folders(tmp_path: Path) -> None:
    """A catalogue's own folder is looked in first, also if another one was read before."""
    for name in ("one", "two"):
        body = f"def judge(match): return match.reject('{name}')"
        file(tmp_path / name, body, "acme_checks.py")
        text = YAML.replace("name: y", f"name: {name}") + "    check: 'acme_checks:judge'\n"
        file(tmp_path / name, text)
    names = [str(tmp_path / name / "rules.yaml") for name in ("one", "two")]
    found = read_catalogs(names, SCHEMAS, allow_code=True)
    selection = select_matches(model_from_text(CHAIN), found.patterns)

    assert describe_refusals(selection) == ["one at y: check: one", "two at y: check: two"]


def test_a_check_of_a_rewrite(tmp_path: Path) -> None:
    """``rewrites`` take checks, too, under the same flag."""
    file(tmp_path, "def judge(match): return match.reject('never')", "acme_checks.py")
    rule = "  - {name: w, pattern: Neg(x), replacement: x, check: 'acme_checks:judge'}\n"
    path = file(tmp_path, f"dpl: 1\nrewrites:\n{rule}")
    assert "--allow-code" in (refusal(path).hint or "")
    found = load(path, allow_code=True)
    selection = select_matches(model_from_text(CHAIN), found.rewrites)
    assert describe_refusals(selection) == ["w at a: check: never"]


# -- hostile YAML ------------------------------------------------------------------------------

SECRET = "TOP-SECRET-4711"  # noqa: S105  # the text that must not appear


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Return a file outside the catalogue's folder that is nobody's business."""
    return file(tmp_path, f"{SECRET}: [\n", "outside/secret.yaml")


@pytest.mark.parametrize(
    "name",
    [
        "../outside/secret.yaml",
        "sub/../../outside/secret.yaml",
        "{folder}/outside/secret.yaml",
        "link.yaml",
        "linked/secret.yaml",
        "./link.yaml",
        "",
        ".",
        "..",
        "sub",
        "../here2/x.yaml",
        "x\0y.yaml",
        "a" * 5000,
        "loop.yaml",
        "file:///etc/hostname",
        "~/x.yaml",
        "$HOME/x.yaml",
        "/dev/stdin",
        "/proc/self/environ",
    ],
)
def test_an_include_stays_in_its_folder(tmp_path: Path, secret: Path, name: str) -> None:
    """No path, no link and no trick leads out, and nothing of the file is in the message."""
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    (here / "link.yaml").symlink_to(secret)
    (here / "linked").symlink_to(secret.parent)
    (here / "loop.yaml").symlink_to(here / "loop.yaml")
    file(tmp_path, YAML, "here2/x.yaml")
    quoted = name.format(folder=tmp_path).replace("\0", "\\0")
    path = file(here, f'{HEAD}include: ["{quoted}"]\npatterns: []\n')
    with within(5):
        error = refusal(path)

    assert error.message.startswith("rules.yaml:3:")
    assert SECRET not in error.message
    assert SECRET not in (error.hint or "")


def test_an_include_of_python_is_refused(tmp_path: Path) -> None:
    """YAML runs nothing: not by name, by case, by link or by what it includes."""
    proof = tmp_path / "proof"
    module = file(tmp_path, f"open({str(proof)!r}, 'w').close()\nCATALOG = []", "here/evil.py")
    here = tmp_path / "here"
    (here / "evil.yaml").symlink_to(module)
    (here / "evil2.yaml").hardlink_to(module)
    file(here, module.read_text(), "evil.PY")
    for name in ("evil.py", "./evil.py", "evil.PY", "evil.yaml", "evil2.yaml", "../here/evil.py"):
        with within(5):
            refusal(file(here, f"{HEAD}include: ['{name}']\npatterns: []\n"))
        assert not proof.exists(), name


def test_includes_may_form_a_circle(tmp_path: Path) -> None:
    """Each file is read once, also when it includes itself under another name."""
    (tmp_path / "sub").mkdir()
    file(tmp_path, f"{HEAD}include: [b.yaml, sub/../rules.yaml]\npatterns: []\n")
    file(tmp_path, YAML.replace("patterns", "include: [rules.yaml]\npatterns"), "b.yaml")

    assert [rule.name for rule in load(tmp_path / "rules.yaml").patterns] == ["y"]


@pytest.mark.long
def test_a_long_chain_of_includes(tmp_path: Path) -> None:
    """A thousand files that include each other in a row: rules or an error, no overflow."""
    for number in range(1000):
        text = f"{HEAD}include: [c{number + 1}.yaml]\npatterns: []\n"
        file(tmp_path, text, f"c{number}.yaml")
    file(tmp_path, YAML, "c1000.yaml")
    with within(20), suppress(CatalogError):
        assert len(load(tmp_path / "c0.yaml").patterns) == 1


def bomb(levels: int, width: int) -> str:
    """Return aliases that stand for width ** levels items."""
    lines = ["a0: &a0 [x, x]"]
    for number in range(levels):
        items = ", ".join([f"*a{number}"] * width)
        lines.append(f"a{number + 1}: &a{number + 1} [{items}]")
    return "\n".join(lines)


RULES_HEAD = f"{HEAD}patterns:\n  - name: r\n    pattern: "
HOSTILE_YAML = {
    "billion-laughs": f"{HEAD}{bomb(9, 10)}\n",
    "billion-laughs-in-where": f"{HEAD}{bomb(30, 2)}\npatterns:\n- {{name: r, where: *a30}}\n",
    "merge-bomb": HEAD
    + "m0: &m0 {a: 1}\n"
    + "".join(
        f"m{n + 1}: &m{n + 1} {{<<: [{', '.join([f'*m{n}'] * 10)}], k{n}: 1}}\n" for n in range(9)
    ),
    "circle": f"{HEAD}patterns: &p [*p]\n",
    "circle-of-mappings": f"{HEAD}doc: &d {{d: *d}}\n",
    "circle-of-keys": f"{HEAD}? &k [*k]\n: 1\n",
    "python-apply": f"{HEAD}doc: !!python/object/apply:os.system ['touch proof']\n",
    "python-new": f"{HEAD}doc: !!python/object/new:os.system ['touch proof']\n",
    "python-module": f"{HEAD}doc: !!python/module:subprocess\n",
    "python-name": f"{HEAD}patterns: [!!python/name:os.system]\n",
    "python-in-a-pattern": f"{RULES_HEAD}!!python/object/apply:os.system ['touch proof']\n",
    "python-as-a-key": f"{HEAD}? !!python/object/apply:os.system ['touch proof']\n: 1\n",
    "own-tag": f"{RULES_HEAD}!include ../outside/secret.yaml\n",
    "tag-directive": f"%TAG ! tag:yaml.org,2002:python/\n---\n{RULES_HEAD}!name:os.system x\n",
    "date": f"{RULES_HEAD}2001-12-14\n",
    "binary": f"{RULES_HEAD}!!binary aGVsbG8=\n",
    "set": f"{RULES_HEAD}!!set {{a, b}}\n",
    "omap": f"{HEAD}patterns: !!omap [a: 1]\n",
    "null": f"{RULES_HEAD}~\n",
    "nan": f"{RULES_HEAD}.nan\n",
    "huge-number": f"{RULES_HEAD}{'9' * 20_000}\n",
    "huge-number-as-version": f"dpl: {'9' * 20_000}\ntarget: t\n",
    "huge-exponent": "dpl: 1e999999\ntarget: t\n",
    "sexagesimal": f"dpl: {':'.join(['1'] * 2000)}\ntarget: t\n",
    "hexadecimal": f"dpl: 0x{'f' * 20_000}\ntarget: t\n",
    "two-documents": f"{YAML}---\n{YAML}",
    "many-documents": "---\n" * 10_000,
    "deep-lists": f"{HEAD}patterns: {'[' * 1000}{']' * 1000}\n",
    "deep-mappings": f"{HEAD}patterns: {'{a: ' * 3000}{'}' * 3000}\n",
    "deep-indents": HEAD + "".join(f"{' ' * n}a:\n" for n in range(1500)),
    "many-keys": HEAD + "".join(f"k{n}: 1\n" for n in range(5000)),
    "same-anchor": f"{HEAD}patterns: &a [&a x, *a]\n",
    "control-characters": f"{HEAD}doc: \x07\x1b[31m\n",
    "surrogate": f'{HEAD}doc: "\\ud800"\npatterns: []\nwrong: 1\n',
    "null-character": f'{RULES_HEAD}"Relu(x)\\0"\n',
    "long-key": f"{HEAD}{'k' * 3000}: 1\n",
    "long-name": f"{HEAD}patterns: [{{name: {'n' * 100_000}!, pattern: Relu(x)}}]\n",
    "key-is-a-list": f"{HEAD}? [a, b]\n: 1\n",
    "key-is-a-number": f"{HEAD}1: 1\n",
    "key-is-null": f"{HEAD}~: 1\n",
}


@pytest.mark.parametrize(
    "text", with_long({n: (t,) for n, t in HOSTILE_YAML.items()}, {"deep-lists", "many-keys"})
)
def test_hostile_yaml_is_refused_quickly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A CatalogError within seconds, of a length that the file explains; nothing has run."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rules.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with within(15):
        error = refusal(path)

    assert len(error.message) < 3 * len(text) + 2000
    assert [item.name for item in tmp_path.iterdir()] == ["rules.yaml"]


HOSTILE_PATTERNS = {
    "import": "__import__('os').system('touch proof')",
    "attribute-walk": "().__class__.__bases__[0].__subclasses__()",
    "dunder-method": "Relu(x).__class__()",
    "dunder-domain": "os.system('touch proof')",
    "method-of-a-pattern": "Relu(x).has_dtype.__globals__",
    "lambda": "(lambda: Relu(x))()",
    "comprehension": "[x for x in [0]*10**9]",
    "comprehension-in-a-call": "Relu([x for x in range(10**9)])",
    "power": "Relu(9**9**9**9)",
    "power-in-an-attribute": "Conv(x, w, group=9**9**9**9)",
    "shift-in-an-attribute": "Conv(x, w, group=1 << 10**10)",
    "repeat-in-an-attribute": "Conv(x, w, strides=[1]*10**9)",
    "huge-integer": f"Conv(x, w, group={'9' * 5000})",
    "huge-number": f"Mul(x, {'9' * 5000})",
    "huge-float": "Mul(x, 1e999)",
    "huge-index": "Relu(Split(x, ...)[10**9])",
    "large-index": "Relu(Split(x, ...)[1000000000])",
    "f-string": "Relu(f'{x}')",
    "walrus": "Relu(y := x)",
    "await": "await x",
    "yield": "(yield x)",
    "star": "Relu(*[x])",
    "slice": "Relu(x)[1:2]",
    "import-statement": "import os\nRelu(x)",
    "def": "def f(): pass\nRelu(x)",
    "exec": "exec('1')",
    "deep": "Relu(" * 5000 + "x" + ")" * 5000,
    "deep-minus": "-" * 5000 + "x",
    "deep-parentheses": "(" * 300 + "Relu(x)" + ")" * 300,
    "null": "Relu(x\0)",
    "complex": "Mul(x, 1j)",
    "bytes": "Mul(x, b'a')",
    "ellipsis": "...",
    "underscore": "_",
    "repeat-many": "repeat(Relu, x, min=1000000000, max=1000000000)",
    "repeat-negative": "repeat(Relu, x, min=5, max=2)",
    "huge-dimension": f"Relu(x.has_shape({'9' * 5000}))",
}


@pytest.mark.parametrize("pattern", HOSTILE_PATTERNS.values(), ids=HOSTILE_PATTERNS)
def test_a_hostile_pattern_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    """It is refused, or it is a pattern that matches nothing; either within seconds."""
    monkeypatch.chdir(tmp_path)
    block = textwrap.indent(pattern, "      ")
    path = file(tmp_path, f"{RULES_HEAD}|\n{block}\n")
    with within(5), suppress(DplError):
        selection = select_matches(model_from_text(CHAIN), load(path).patterns)
        assert taken(selection) == [] or pattern == HOSTILE_PATTERNS["deep-parentheses"]
    assert not (tmp_path / "proof").exists()


HOSTILE_REPLACEMENTS = {
    "import": "__import__('os').system('touch proof')",
    "import-in-const": "const(__import__('os').system('touch proof'))",
    "class-in-const": "const(x.__class__)",
    "subclasses": "const(x.value.__class__.__bases__)",
    "array-method": "const(x.value.tofile('proof'))",
    "array-dump": "LeakyRelu(x, alpha=x.value.dump('proof'))",
    "array-base": "const(x.value.base)",
    "power": "const(9**9**9**9)",
    "power-in-an-attribute": "LeakyRelu(x, alpha=9**9**9**9)",
    "list-bomb": "const([x for x in [0]*10**9])",
    "nested-comprehension": "const([[[a for a in x.shape] for b in x.shape] for c in x.shape])",
    "shape-bomb": "const(max([0]*10**9))",
    "text-bomb": "LeakyRelu(x, alpha='a'*10**9)",
    "shift": "const(1 << 10**10)",
    "range": "const(sum(range(10**9)))",
    "lambda": "const((lambda: 1)())",
    "format": "LeakyRelu(x, alpha='{0.__class__}'.format(x))",
    "f-string": "LeakyRelu(x, alpha=f'{x.__class__}')",
    "huge-number": f"Mul(x, {'9' * 5000})",
    "huge-index": "Relu(x)[1000000000]",
    "deep": "Relu(" * 5000 + "x" + ")" * 5000,
    "deep-const": "const(" + "-" * 5000 + "1)",
    "statement": "import os\nx",
    "dunder-domain": "os.system('touch proof')",
    "inf": "Mul(x, 1e999)",
}


@pytest.mark.parametrize("replacement", HOSTILE_REPLACEMENTS.values(), ids=HOSTILE_REPLACEMENTS)
def test_a_hostile_replacement_runs_nothing(run: Run, tmp_path: Path, replacement: str) -> None:
    """Refused at load, or a trial that fails or passes: within seconds, without a crash."""
    block = textwrap.indent(replacement, "      ")
    rule = f"  - name: r\n    pattern: Neg(x)\n    replacement: |\n{block}\n"
    path = file(tmp_path, f"dpl: 1\nrewrites:\n{rule}")
    with within(5):
        code, _, err = run("patterns", "test", path, "--trials", "8")

    assert code in {0, 1, 2}
    assert "internal error" not in err
    assert len(err) < 2 * len(replacement) + 3000
    assert not (tmp_path / "proof").exists()


HOSTILE_CONDITIONS = {
    "bomb": "[x for x in [0]*10**9]",
    "nested": "any([a == b == c for a in x.shape for b in x.shape for c in x.shape])",
    "power": "9**9**9**9 == 1",
    "import": "__import__('os').system('touch proof')",
    "class": "x.__class__ == 1",
    "value-method": "x.value.tofile('proof')",
    "open": "open('m.onnx')",
    "text": "'a'*10**9 == ''",
    "deep": "(" * 150 + "1" + ")" * 150,
    "deeper": "not " * 5000 + "1",
    "long": " or ".join(["x.rank == 3"] * 20_000),
}


@pytest.mark.parametrize(
    "where", with_long({n: (t,) for n, t in HOSTILE_CONDITIONS.items()}, {"long"})
)
def test_a_hostile_condition_runs_nothing(run: Run, tmp_path: Path, where: str) -> None:
    """Refused at load, or a no: within seconds."""
    file(tmp_path, f'{RULES_HEAD}Relu(x)\n    where: ["{where}"]\n')
    with within(15):
        code, _, err = run("match", "m.onnx", "-p", "rules.yaml")

    assert code in {0, 2}
    assert "internal error" not in err
    assert not (tmp_path / "proof").exists()


@pytest.mark.long
def test_a_very_long_file(tmp_path: Path) -> None:
    """Ten thousand lines of comments, and a rule in the last one: a rule like others."""
    with within(15):
        found = load(file(tmp_path, f"{'# nothing to see' * 20}\n" * 10_000 + YAML))
    assert [rule.origin for rule in found.patterns] == ["rules.yaml:10004"]


def test_many_rules(tmp_path: Path) -> None:
    """A thousand rules take a second or so, not the square of it."""
    rules = "".join(f"  - name: r{n}\n    pattern: Relu(Neg(x))\n" for n in range(1000))
    with within(10):
        assert len(load(file(tmp_path, f"{HEAD}patterns:\n{rules}")).patterns) == 1000


def test_an_error_in_a_very_long_line_is_short(tmp_path: Path) -> None:
    """The excerpt shows where it is, not a megabyte of it."""
    path = file(tmp_path, f"{RULES_HEAD}Rellu({'x' * 1_000_000})\n")
    with within(5), pytest.raises(CatalogError) as caught:
        load(path)
    assert len(caught.value.message) < 10_000


def test_a_file_that_is_no_file(tmp_path: Path) -> None:
    """A directory, a dangling link, a file without leave and a FIFO: an error, and no wait."""
    (tmp_path / "gone.yaml").symlink_to(tmp_path / "nowhere.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    for name in ("", "gone.yaml", "pipe.yaml"):
        with within(5):
            refusal(tmp_path / name)


def test_the_examples_of_a_catalogue_are_data(run: Run, tmp_path: Path) -> None:
    """External data in an example is not read from elsewhere."""
    secret = file(tmp_path, SECRET, "outside/secret.bin")
    example = (
        "g (float[2] x) => (float[2] y) "
        f'<float[2] w = [\\"location\\": \\"{secret}\\"]> {{ y = Add (x, w) }}'
    )
    rule = "  - name: r\n    pattern: Add(x, w)\n    examples:\n"
    file(tmp_path, f'{HEAD}patterns:\n{rule}      - before: "{example}"\n')
    with within(5):
        code, out, err = run("patterns", "test", "rules.yaml", "--json", "-")

    assert code == 1, (out, err)
    assert "internal error" not in err
    assert SECRET not in out + err
