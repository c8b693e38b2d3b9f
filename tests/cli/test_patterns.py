"""``dpl patterns``: what there is, whether it is right, and whether it does what it says."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import ruamel.yaml

from dplcli.catalog import finding
from tests.cli.support import ROOT, Answer, Dpl
from tests.support.helpers import one_in, with_long
from tests.support.strategies import within

Json: TypeAlias = dict[str, Any]
Write = Callable[..., Path]
Check = Callable[..., list[tuple[str, str, str]]]

SHIPPED = sorted(path.stem for path in (ROOT / "patterns").glob("*.yaml"))
HEAD = "dpl: 1\ntarget: t\n"
SCHEMAS = {
    "list": "dpl.patterns.list/1",
    "show": "dpl.patterns.show/1",
    "check": "dpl.patterns.check/1",
    "test": "dpl.patterns.test/1",
}


@pytest.fixture(autouse=True)
def unwrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables be as wide as they are; parallel tests run with COLUMNS set."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def write(folder: Path) -> Write:
    """Return a function that writes a catalogue, given as mappings, to ``rules.yaml``."""

    def call(*, name: str = "rules.yaml", **content: object) -> Path:
        path = folder / name
        path.write_text(json.dumps({"dpl": 1, "target": "t", **content}), encoding="utf-8")
        return path

    return call


def record(answer: Answer, code: int = 0) -> Json:
    """Return the record that was printed; on a busy machine dpl says that it is still at work."""
    said = [line for line in answer.err.splitlines() if not line.startswith("dpl: still ")]
    assert (answer.code, said) == (code, []), answer
    found: Json = json.loads(answer.out)
    return found


# -- list --------------------------------------------------------------------------------------


@pytest.mark.long
def test_list_names_what_dpl_ships(dpl: Dpl) -> None:
    """Name, origin, target, doc and count, in the table and in the record."""
    found = record(dpl("patterns", "list", "--json", "-"))

    assert found["schema"] == SCHEMAS["list"]
    assert [list(entry) for entry in found["catalogs"]] == [
        ["name", "origin", "target", "doc", "rules"]
    ] * len(found["catalogs"])
    shipped = {entry["name"]: entry for entry in found["catalogs"] if entry["origin"] == "dpl"}
    assert sorted(shipped) == SHIPPED
    printed = dpl("patterns", "list")
    assert printed.code == 0
    for name, entry in shipped.items():
        shown = record(dpl("patterns", "show", name, "--json", "-"))["rules"]
        assert entry["rules"] == len(shown)
        assert entry["doc"] in printed.out
        assert name in printed.out


@pytest.mark.long
def test_reports_go_to_a_file(dpl: Dpl, folder: Path, write: Write) -> None:
    """``--json FILE`` writes the bytes that ``-`` prints; a catalogue is never replaced."""
    path = write(patterns=[{"name": "r", "pattern": "Relu(Neg(x))"}])
    before = path.read_bytes()
    for command in ("list", "show", "check", "test"):
        arguments = () if command == "list" else (path,)
        printed = dpl("patterns", command, *arguments, "--json", "-")
        filed = dpl("patterns", command, *arguments, "--json", "report.json")
        assert (printed.code, filed.code) == (0, 0)
        assert (folder / "report.json").read_text(encoding="utf-8") == printed.out
        assert json.loads(printed.out)["schema"] == SCHEMAS[command]
        assert str(folder) not in printed.out
        if arguments:
            assert dpl("patterns", command, path, "--json", path).code == 2
    assert path.read_bytes() == before


@pytest.mark.parametrize("command", ["show", "check", "test"])
def test_usage(dpl: Dpl, write: Write, command: str) -> None:
    """No catalogue, an unknown one and an unknown rule: exit 2 and a way out."""
    path = write(patterns=[{"name": "relu", "pattern": "Relu(Neg(x))"}])

    assert "patterns list" in dpl("patterns", command).hint
    unknown = dpl("patterns", command, "conv_rleu")
    assert (unknown.code, unknown.hint) == (2, "did you mean 'conv_relu'?")
    rule = dpl("patterns", command, path, "--rule", "rleu")
    assert (rule.code, rule.out, rule.hint) == (2, "", "did you mean 't.relu'?")


# -- show --------------------------------------------------------------------------------------

ROUND_TRIPS = {
    "line": "r = Relu(x)\nAdd(r, r)",
    "alternatives": "Relu(x) | Abs(x) | Neg(x)",
    "callee-choice": "(Add | Sub)(x, y)",
    "nested-choice": "Relu((Add | Sub)(x, Abs(y) | Neg(y)))",
    "omitted": "Clip(x, None, const(high))",
    "rest": "Concat(x, ..., axis=1)",
    "attributes": 'Conv(x, w, strides=[1, 2], auto_pad="VALID", **attrs)',
    "waived": "Conv(x, w, **_)",
    "numbers": "Mul(x, 0.5) + 2.0",
    "negative-number": "Mul(x, -0.5)",
    "arithmetic": "-(a + b) * (c - d) / (a @ d)",
    "power": "(a ** 2.0) ** b",
    "anything": "Add(_, _)",
    "outputs": "y, m, _ = LayerNormalization(x, s, b)\nAdd(y, m)",
    "second-output": "Relu(Split(x, ...)[1])",
    "several": "Relu(x), Abs(x)",
    "domain": "com.microsoft.Gelu(x)",
    "kind": 'op(kind="elementwise")(x, ...)',
    "types": 'Relu(x.has_dtype("float32", "float16").has_shape(n, _, 28).has_rank(3))',
    "not": "Relu(~Abs(x))",
    "and": "Relu(const(c) & x.has_rank(2))",
    "optional": "Relu(optional(Add)(Neg(x), const(b)))",
    "repeat": "Relu(repeat(Cast, x, min=1, max=3))",
    "unordered": "Sum(unordered(a, Relu(b), c))",
    "input": 'Relu(input("x"))',
    "same-shape": "Add(a, same_shape(b, a))",
    "dominates": "dominates(Conv(x, w), op(kind='elementwise')(...), Relu(_))",
    "if": "if_(c, Relu(x), Neg(x))",
    "edges": "Relu(x).only_used_by(Neg(_))",
}


@pytest.mark.parametrize("pattern", ROUND_TRIPS.values(), ids=ROUND_TRIPS)
def test_what_is_shown_loads_again(dpl: Dpl, write: Write, pattern: str) -> None:
    """The pattern that is shown means itself: shown a second time it is the same text."""
    first = dpl(
        "patterns", "show", write(patterns=[{"name": "r", "pattern": pattern}]), "--json", "-"
    )
    shown = record(first)["rules"][0]["pattern"]

    again = dpl(
        "patterns", "show", write(patterns=[{"name": "r", "pattern": shown}]), "--json", "-"
    )

    assert record(again)["rules"][0]["pattern"] == shown


@pytest.mark.parametrize("name", one_in(4, SHIPPED))
def test_shipped_patterns_shown_load_again(dpl: Dpl, write: Write, name: str) -> None:
    """Every rule of the shipped catalogues, conditions and all."""
    rules = record(dpl("patterns", "show", name, "--json", "-"))["rules"]
    entries = [
        {
            "name": rule["name"].removeprefix(f"{rule.get('target')}."),
            "pattern": rule["pattern"],
            "where": rule["where"],
        }
        for rule in rules
    ]

    again = record(dpl("patterns", "show", write(patterns=entries), "--json", "-"))["rules"]

    assert [rule["pattern"] for rule in again] == [rule["pattern"] for rule in rules]


def test_a_catalogue_may_be_the_text_of_a_pattern(dpl: Dpl) -> None:
    """All of ``dpl patterns`` takes it; what is wrong with it is said with its place."""
    answer = dpl("patterns", "show", "Relu(Conv(x, w))", "Tanh(x)", "--json", "-")
    rules = json.loads(answer.out)["rules"]
    assert [(rule["name"], rule["pattern"]) for rule in rules] == [
        ("custom.pattern", "Relu(Conv(x, w))"),
        ("custom.pattern_2", "Tanh(x)"),
    ]
    assert dpl("patterns", "check", "Relu(x)").code == 0
    contract = dpl("patterns", "contract", "Relu(x)")
    assert contract.out.startswith("custom::pattern\n  rule custom.pattern, body: Relu\n")
    answer = dpl("patterns", "show", "Relu(Foo(x))")
    assert (answer.code, answer.message) == (
        2,
        "the pattern 'Relu(Foo(x))', 1:6: unknown operator 'Foo'",
    )


def test_show_says_everything_about_a_rule(dpl: Dpl, write: Write) -> None:
    """Both kinds, with conditions, policies, opsets, doc and origin."""
    path = write(
        patterns=[
            {
                "name": "p",
                "doc": "One thing.",
                "pattern": "Relu(Neg(x))",
                "where": ["x.rank == 2"],
                "constants": "lift",
                "escape": "outputs",
                "order": "program",
                "opsets": [13, 18],
                "attrs": {"k": "v"},
                "examples": [{"before": "g (float[2] x) => (y) { y = Abs (x) }"}],
            }
        ],
        rewrites=[{"name": "w", "pattern": "Neg(Neg(x))", "replacement": "x", "opsets": [13]}],
    )
    outline, rewrite = record(dpl("patterns", "show", path, "--json", "-"))["rules"]

    assert (outline["kind"], outline["name"], outline["doc"]) == ("pattern", "t.p", "One thing.")
    assert (outline["where"], outline["opsets"]) == (["x.rank == 2"], [13, 18])
    assert (outline["escape"], outline["order"]) == ("outputs", "program")
    assert (outline["constants"], outline["attrs"]) == ("lift", {"k": "v"})
    assert outline["examples"] == 1
    assert (rewrite["kind"], rewrite["name"], rewrite["replacement"]) == ("rewrite", "w", "x")
    assert rewrite["opsets"] == [13, None]
    printed = dpl("patterns", "show", path).out
    for text in (
        "One thing.",
        "where x.rank == 2",
        "escape: outputs",
        "opsets 13 to 18",
        "becomes",
    ):
        assert text in printed
    only = record(dpl("patterns", "show", path, "--rule", "w", "--json", "-"))["rules"]
    assert only == [rewrite]


# -- check -------------------------------------------------------------------------------------


@pytest.fixture
def problems(dpl: Dpl, write: Write) -> Check:
    """Return a function that checks a catalogue: severity, rule and message of each problem."""

    def call(**content: object) -> list[tuple[str, str, str]]:
        path = write(**content)
        answer = dpl("patterns", "check", path, "--json", "-")
        assert answer.code in {0, 1}, answer
        found = record(answer, answer.code)
        assert found["schema"] == SCHEMAS["check"]
        errors = [item for item in found["problems"] if item["severity"] == "error"]
        assert found["errors"] == len(errors)
        assert answer.code == bool(errors)
        table = dpl("patterns", "check", path)
        assert table.code == answer.code
        for item in found["problems"]:
            assert list(item) == ["severity", "rule", "place", "message"]
            assert re.match(r"rules\.yaml:\d+(:\d+)?$", item["place"]), item
            line = f"{item['place']}: {item['severity']}: {item['rule']}: {item['message']}"
            assert line in table.out
        if not found["problems"]:
            assert "No problems found." in table.out
        return [(p["severity"], p["rule"], p["message"]) for p in found["problems"]]

    return call


def outline(pattern: str, **more: object) -> list[Json]:
    """Write one rule that outlines."""
    return [{"name": "r", "pattern": pattern, **more}]


def becomes(pattern: str, replacement: str, **more: object) -> list[Json]:
    """Write one rule that rewrites."""
    return [{"name": "r", "pattern": pattern, "replacement": replacement, **more}]


RIGHT: dict[str, Json] = {
    "plain": {"patterns": outline("Relu(Conv(x, w))")},
    "whole-number-for-a-float": {"patterns": outline("Relu(LeakyRelu(x, alpha=1))")},
    "list": {"patterns": outline("Relu(Conv(x, w, strides=[1, 1]))")},
    "type-by-name": {"patterns": outline("Relu(Cast(x, to='float16'))")},
    "moved-attribute": {"patterns": outline("Relu(Squeeze(x, axes=[1]))", opsets=[7])},
    "claimed": {"patterns": outline("Relu(Gelu(x))", opsets=[20])},
    "one-node-twice": {"patterns": outline("a = Relu(x)\nNeg(a & a)")},
    "node-and-type": {"patterns": outline("Neg(Relu(x) & _.has_rank(2))")},
    "unused-in-a-pattern": {"patterns": outline("Relu(Add(x, y))")},
    "used-in-where": {
        "rewrites": becomes("Sub(x, y)", "Neg(x)", where=["y.rank == 7"], opsets=[7, 7]),
    },
    "compared-by-identity": {"rewrites": becomes("Sub(x, x) + y", "y", where=["y.rank == 3"])},
    "underscore": {"rewrites": becomes("Where(_, x, x)", "x")},
    "newer-operator-claimed": {
        "rewrites": becomes("Relu(Relu(x))", "Gelu(x)", opsets=[20]),
    },
}


@pytest.mark.parametrize("content", RIGHT.values(), ids=RIGHT)
def test_nothing_is_said_against_what_is_right(problems: Check, content: Json) -> None:
    """No false alarm."""
    assert problems(**content) == []


WRONG: dict[str, tuple[Json, str, str]] = {
    "operator-newer-than-claimed": (
        {"patterns": outline("Relu(Gelu(x))", opsets=[13])},
        "warning",
        "Gelu exists from opset 20 on, the rule claims 13",
    ),
    "attribute-newer-than-claimed": (
        {"patterns": outline("Relu(BatchNormalization(x, ..., training_mode=0))", opsets=[13])},
        "warning",
        "training_mode",
    ),
    "attribute-older-than-claimed": (
        {"patterns": outline("Relu(BatchNormalization(x, s, b, m, v, spatial=1))", opsets=[13])},
        "warning",
        "spatial",
    ),
    "unused-name": (
        {"rewrites": becomes("Sub(x, y)", "Neg(x)", where=["x.rank == 7"], opsets=[7, 7])},
        "warning",
        "'y' is bound and not used",
    ),
    "newer-operator-in-the-replacement": (
        {"rewrites": becomes("Relu(Relu(x))", "Gelu(x)")},
        "error",
        "the replacement makes Gelu, which exists from opset 20 on: say opsets: [20]",
    ),
    "newer-operator-inside-the-replacement": (
        {"rewrites": becomes("Relu(Relu(x))", "Neg(Gelu(x))", opsets=[13])},
        "error",
        "Gelu",
    ),
    "wrong-arity-in-a-new-opset": (
        {"rewrites": becomes("Relu(Relu(x))", "Unsqueeze(x)")},
        "error",
        "the replacement gives Unsqueeze 1 inputs, wrong in opset 13",
    ),
    "attribute-gone-in-a-new-opset": (
        {
            "rewrites": becomes(
                "BatchNormalization(x, s, b, m, v, **_)",
                "BatchNormalization(x, s, b, m, v, spatial=1)",
            )
        },
        "error",
        "the replacement gives BatchNormalization 'spatial', unknown in opset 9",
    ),
    "line-that-is-not-used": (
        {"patterns": [{"name": "r", "pattern": "left = Conv(x, w)\nRelu(Conv(x, w))"}]},
        "warning",
        "the line 'left' is not used",
    ),
    "attribute-kind-in-the-replacement": (
        {"rewrites": becomes("Relu(Relu(x))", "LeakyRelu(x, alpha='big')")},
        "error",
        "alpha",
    ),
    "feeds-itself": (
        {"rewrites": becomes("Relu(x)", "Relu(Neg(x))")},
        "error",
        "rewrites its own output forever",
    ),
    "swaps-for-ever": (
        {"rewrites": becomes("Add(x, y)", "Add(y, x)")},
        "error",
        "rewrites its own output forever",
    ),
}


@pytest.mark.parametrize(("content", "severity", "message"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_a_problem(
    problems: Check, content: Json, severity: str, message: str
) -> None:
    """Severity, rule and message; exit code 1 for errors, 0 for warnings."""
    found = problems(**content)

    assert {item[0] for item in found} == {severity}, found
    assert message in found[0][2]
    assert found[0][1] == ("t.r" if "patterns" in content else "r")


IMPOSSIBLE = {
    "text-for-a-number": (
        "Relu(LeakyRelu(x, alpha='big'))",
        "LeakyRelu: alpha is float, not 'big'",
    ),
    "number-for-a-list": ("Relu(Conv(x, w, strides=1))", "Conv: strides is ints, not 1"),
    "floats-for-ints": ("Relu(Conv(x, w, strides=[1.5, 1.5]))", "strides is ints"),
    "fraction-for-an-int": ("Relu(Softmax(x, axis=0.5))", "axis is int"),
    "text-for-an-int": ("Relu(Softmax(x, axis='one'))", "axis is int"),
    "number-for-a-text": ("Relu(Conv(x, w, auto_pad=1))", "auto_pad is string, not 1"),
    "two-nodes-at-once": ("Neg(Relu(x) & Abs(x))", "both sides of & are nodes of their own"),
    "two-nodes-of-one-operator-at-once": (
        "Neg(Relu(x) & Relu(y))",
        "both sides of & are nodes of their own",
    ),
}


@pytest.mark.parametrize(("pattern", "message"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_can_never_match_is_not_loaded(
    dpl: Dpl, write: Write, pattern: str, message: str
) -> None:
    """The message points at the part; no command goes on with such a rule."""
    for command in (("patterns", "check"), ("patterns", "show")):
        answer = dpl(*command, write(patterns=outline(pattern)))

        assert answer.code == 2
        assert re.search(r"rules\.yaml:1:\d+: rule 'r': ", answer.err)
        assert message in answer.err


# onnx's own shape inference reads beyond its data for these, which ends the process.
ABORTING = {
    "split": "Split(x, num_outputs=2)",
    "first-of-two": "Relu(Split(x, num_outputs=2)[0])",
    "named": "a, b = Split(x, num_outputs=2)\nRelu(a)",
    "empty-list": "Relu(Conv(x, w, dilations=[]))",
}


@pytest.mark.long
@pytest.mark.parametrize("kind", one_in(3, ABORTING))
@pytest.mark.parametrize("command", one_in(2, ["test", "check"]))
def test_a_strange_attribute_does_not_end_the_process(
    dpl_process: Dpl, write: Write, command: str, kind: str
) -> None:
    """A graph made up for it may be no model; then another is tried, or none."""
    patterns = outline(ABORTING[kind])
    answer = dpl_process("patterns", command, write(patterns=patterns), "--json", "-")

    assert answer.code in {0, 1}, answer
    assert json.loads(answer.out)["schema"] == SCHEMAS[command]


def test_the_place_of_a_problem_is_its_part(dpl: Dpl, folder: Path) -> None:
    """Line and column of the node with the operator that is not there yet."""
    pattern = "|\n      c = Gelu(x)\n      Relu(c)\n"
    text = f"{HEAD}patterns:\n  - name: r\n    opsets: [13]\n    pattern: {pattern}"
    (folder / "rules.yaml").write_text(text)
    (problem,) = record(dpl("patterns", "check", "rules.yaml", "--json", "-"))["problems"]

    line, column = map(int, problem["place"].split(":")[1:])
    assert text.splitlines()[line - 1][column - 1 :].startswith("Gelu(")


def test_a_rule_behind_a_more_general_one_is_unreachable(problems: Check) -> None:
    """Everything it could match is taken by one before it; the other order is fine."""
    general = {"name": "general", "pattern": "Relu(x)"}
    special = {"name": "special", "pattern": "Relu(Conv(x, w))"}
    (problem,) = problems(patterns=[general, special])
    assert problem[:2] == ("warning", "t.special")
    assert "t.general" in problem[2]
    assert problems(patterns=[special, general]) == []


def test_a_rewrite_that_doubles_is_found_in_time(problems: Check) -> None:
    """Each round makes twice as many nodes: nobody waits for twenty of them."""
    with within(5):
        (problem,) = problems(rewrites=becomes("Relu(x)", "Relu(Relu(x))"))
    assert problem == ("error", "r", "rewrites its own output forever")


def test_a_choice_of_operators_is_reachable_through_each(problems: Check) -> None:
    """A rule before takes only one of the operators."""
    first = {"name": "first", "pattern": "Relu(x)"}
    second = {"name": "second", "pattern": "(Relu | Abs)(x)"}
    assert problems(patterns=[first, second]) == []


def test_a_rule_behind_two_halves_is_unreachable(problems: Check) -> None:
    """Each alternative is taken by another rule: both are named."""
    entries = [("one", "Relu(x)"), ("two", "Abs(x)"), ("both", "(Relu | Abs)(x)")]
    (problem,) = problems(patterns=[{"name": n, "pattern": p} for n, p in entries])
    assert "t.one" in problem[2]
    assert "t.two" in problem[2]


def test_a_guarded_rule_before_makes_nothing_unreachable(problems: Check) -> None:
    """A condition, or an opset range, leaves something over."""
    special = {"name": "special", "pattern": "Relu(Conv(x, w))"}
    guarded = {"name": "guarded", "pattern": "Relu(x)", "where": ["x.rank == 2"]}
    old = {"name": "old", "pattern": "Relu(x)", "opsets": [7, 9]}
    assert problems(patterns=[guarded, special]) == []
    assert problems(patterns=[old, special]) == []


def test_a_part_of_what_is_taken_is_still_reachable(problems: Check) -> None:
    """A rule that takes inner nodes of some of its matches leaves the other variants."""
    first = {"name": "first", "pattern": "Relu(Conv(x, w))"}
    second = {"name": "second", "pattern": "Relu(Conv(x, w) | Abs(x))"}
    assert problems(patterns=[first, second]) == []


def test_two_rewrites_that_undo_each_other(problems: Check) -> None:
    """Neither feeds itself, together they do not end; the message names both."""
    found = problems(
        rewrites=[
            {"name": "there", "pattern": "Sub(x, y)", "replacement": "Add(x, Neg(y))"},
            {"name": "back", "pattern": "Add(x, Neg(y))", "replacement": "Sub(x, y)"},
        ]
    )
    assert {item[0] for item in found} == {"warning"}
    assert any("there" in item[2] and "back" in item[2] for item in found)


def test_three_rewrites_in_a_circle(problems: Check) -> None:
    """The same with one more step."""
    steps = [("Abs", "Relu"), ("Relu", "Neg"), ("Neg", "Abs")]
    found = problems(
        rewrites=[
            {"name": f"to_{new}", "pattern": f"{old}(x)", "replacement": f"{new}(x)"}
            for old, new in steps
        ]
    )
    assert found
    assert all(item[0] == "warning" for item in found)


def test_a_rewrite_that_ends_is_not_accused(problems: Check) -> None:
    """Shrinking, and growing into something it does not match, are fine."""
    assert problems(rewrites=becomes("Relu(Relu(x))", "Relu(x)")) == []
    assert problems(rewrites=becomes("Sub(x, y)", "Add(x, Neg(y))")) == []


@pytest.mark.parametrize("name", one_in(len(SHIPPED), SHIPPED, gate=4))
def test_shipped_catalogues_are_without_problems(dpl: Dpl, name: str) -> None:
    """What dpl ships passes its own checks."""
    assert record(dpl("patterns", "check", name, "--json", "-"))["problems"] == []


def test_one_rule_only_is_checked_among_all(dpl: Dpl, write: Write) -> None:
    """--rule shows the problems of one rule, those with the others included."""
    path = write(
        patterns=[
            {"name": "general", "pattern": "Relu(x)"},
            {"name": "special", "pattern": "Relu(Gelu(x))", "opsets": [13]},
        ]
    )
    general = dpl("patterns", "check", path, "--rule", "general", "--json", "-")
    special = dpl("patterns", "check", path, "--rule", "t.special", "--json", "-")

    assert record(general)["problems"] == []
    assert {item["rule"] for item in record(special)["problems"]} == {"t.special"}


# -- test --------------------------------------------------------------------------------------

ADD = "g (float[2] x) => (float[2] y) { y = Add (x, x) }"
SELF = {"name": "r", "pattern": "Add(x, x)", "replacement": "Mul(x, 2.0)"}
DOUBLED = "g (float[2] a) => (float[2] b) <float two = {2}> { b = Mul (a, two) }"
EXAMPLES: dict[str, tuple[Json, Json, str]] = {
    "any": (SELF, {"before": ADD}, ""),
    "any-in-words": (SELF, {"before": ADD, "after": "any"}, ""),
    "any-and-nothing-happens": (
        SELF,
        {"before": ADD.replace("Add", "Sub")},
        "the rule does not match",
    ),
    "unchanged": (SELF, {"before": ADD.replace("Add", "Sub"), "after": "unchanged"}, ""),
    "unchanged-and-it-matches": (
        SELF,
        {"before": ADD, "after": "unchanged"},
        "the rule matches, though the example says unchanged",
    ),
    "text": (SELF, {"before": ADD, "after": DOUBLED}, ""),
    "text-with-another-number": (
        SELF,
        {"before": ADD, "after": DOUBLED.replace("{2}", "{3}")},
        "the result is another one",
    ),
    "text-with-another-operator": (
        SELF,
        {"before": ADD, "after": DOUBLED.replace("Mul", "Div")},
        "the result is another one",
    ),
    "text-with-operands-swapped": (
        SELF,
        {"before": ADD, "after": DOUBLED.replace("(a, two)", "(two, a)")},
        "the result is another one",
    ),
    "text-and-nothing-happens": (
        SELF,
        {"before": ADD.replace("Add", "Sub"), "after": ADD.replace("Add", "Sub")},
        "the rule does not match",
    ),
    "before-is-no-model": (SELF, {"before": "g (float[2] x"}, "before: is not a model"),
    "before-has-an-unknown-operator": (SELF, {"before": ADD.replace("Add", "Bdd")}, "before"),
    "after-is-no-model": (SELF, {"before": ADD, "after": "anything"}, "after: is not a model"),
    "wrong-replacement": (
        SELF | {"replacement": "Mul(x, 3.0)"},
        {"before": ADD},
        "not equivalent",
    ),
    "wrong-replacement-as-the-text-says": (
        SELF | {"replacement": "Mul(x, 3.0)"},
        {"before": ADD, "after": DOUBLED.replace("{2}", "{3}")},
        "not equivalent",
    ),
    "refused-by-where": (
        SELF | {"where": ["x.rank == 2"]},
        {"before": ADD},
        "refused by where: 'x.rank == 2' does not hold",
    ),
    "header-of-its-own": (
        SELF | {"opsets": [7, 13]},
        {"before": f'<ir_version: 7, opset_import: ["" : 13]>\n{ADD}'},
        "",
    ),
}


@pytest.mark.parametrize(("rule", "example", "reason"), EXAMPLES.values(), ids=EXAMPLES)
def test_examples(dpl: Dpl, write: Write, rule: Json, example: Json, reason: str) -> None:
    """An example passes, or fails for this reason, at the line where it is written."""
    path = write(rewrites=[{**rule, "examples": [example]}])
    call = ("patterns", "test", path, "--trials", 3)  # test_a_sound_rewrite_passes makes many up
    answer = dpl(*call, "--json", "-")
    found = record(answer, answer.code)

    assert found["schema"] == SCHEMAS["test"]
    trial = next(item for item in found["trials"] if item["kind"] == "example")
    assert list(trial) == [
        *("rule", "kind", "place", "verdict", "reason", "graphs", "counterexample"),
        *("tried", "behaviours", "notes"),
    ]
    assert trial["verdict"] == ("failed" if reason else "passed"), trial
    assert reason in trial["reason"]
    assert trial["place"].startswith("rules.yaml:")
    assert answer.code == (found["failed"] > 0)
    table = dpl(*call)
    assert table.code == answer.code
    if reason:
        assert answer.code == 1
        assert f"r, example {trial['place']}: failed: {trial['reason']}" in table.out


@pytest.mark.parametrize(("after", "code"), [("any", 0), ("unchanged", 1)])
def test_examples_of_rules_that_outline(dpl: Dpl, write: Write, after: str, code: int) -> None:
    """The function written must compute the same."""
    before = "g (float[2] x) => (float[2] y) { a = Neg (x) y = Relu (a) }"
    examples = [{"before": before, "after": after}]
    path = write(patterns=[{"name": "r", "pattern": "Relu(Neg(x))", "examples": examples}])
    found = record(dpl("patterns", "test", path, "--trials", 3, "--json", "-"), code)

    assert found["failed"] == code


UNSOUND = {
    "add-to-mul": ("Add(x, y)", "Mul(x, y)"),
    "sub-swapped": ("Sub(x, y)", "Sub(y, x)"),
    "relu-dropped": ("Relu(x)", "x"),
    "abs-for-neg-neg": ("Neg(Neg(x))", "Abs(x)"),
    "sqrt-of-square": ("Sqrt(Mul(x, x))", "x"),
    "zero-for-sub": ("Sub(x, y)", "Mul(x, 0.0)"),
    "mul-by-nearly-two": ("Add(x, x)", "Mul(x, 2.01)"),
    "softmax-axis": ("Softmax(x, axis=1)", "Softmax(x, axis=0)"),
    "transposed-matmul": ("MatMul(x, y)", "MatMul(y, x)"),
    "only-one-variant": ("(Relu | Abs)(x)", "Max(x, 0.0)"),
    "commuted-sub": ("Neg(Sub(x, y))", "Sub(x, y)"),
    "max-for-min": ("Min(x, y)", "Max(x, y)"),
    "changed-conv": ("Neg(Conv(x, const(w), **attrs))", "Conv(x, const(w.value * -2), **attrs)"),
    "second-output-is-first": ("a = Relu(x)\na, Neg(a)", "b = Relu(x)\nb, b"),
}


@pytest.mark.parametrize(("pattern", "replacement"), UNSOUND.values(), ids=UNSOUND)
def test_a_wrong_rewrite_fails(dpl: Dpl, write: Write, pattern: str, replacement: str) -> None:
    """Without any example: the made-up graphs show it, and the exit code is 1."""
    path = write(rewrites=[{"name": "r", "pattern": pattern, "replacement": replacement}])
    answer = dpl("patterns", "test", path, "--json", "-")
    found = record(answer, answer.code)

    assert answer.code == 1, found
    assert found["failed"] >= 1
    (trial,) = found["trials"]
    told = (" it is ", " shape is ", "feeds itself", "still matches", "is not valid")
    assert any(words in trial["reason"] for words in told), trial
    assert trial["counterexample"].splitlines()[0].startswith("made_up (")
    printed = dpl("patterns", "test", path).out
    assert "as an example:\n    - before: |\n        made_up (" in printed
    assert "      after: unchanged\n" in printed


SOUND = {
    "neg-neg": ("Neg(Neg(x))", "x"),
    "relu-relu": ("Relu(Relu(x))", "Relu(x)"),
    "add-self": ("Add(x, x)", "Mul(x, 2.0)"),
    "sub-to-add": ("Sub(x, Neg(y))", "Add(x, y)"),
    "abs-neg": ("Abs(Neg(x))", "Abs(x)"),
    "conv-scaled": (
        "Conv(Mul(x, 2.0), const(w).has_rank(3), **attrs)",
        "Conv(x, const(w.value * 2), **attrs)",
    ),
    "two-outputs": ("a = Neg(x)\na, Relu(a)", "b = x * -1.0\nb, Relu(b)"),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("pattern", "replacement"), with_long(SOUND, SOUND.keys() - {"abs-neg", "two-outputs"})
)
def test_a_sound_rewrite_passes(dpl: Dpl, write: Write, pattern: str, replacement: str) -> None:
    """Something was made up, tried and found equal."""
    more = {"opsets": [7, 21]}
    path = write(rewrites=[{"name": "r", "pattern": pattern, "replacement": replacement, **more}])
    found = record(dpl("patterns", "test", path, "--trials", 60, "--json", "-"))

    assert {trial["verdict"] for trial in found["trials"]} == {"passed"}, found


NOT_TRIED = {
    "foreign-operator": ("Relu(com.acme.Thing(x))", "com.acme"),
    "call-of-a-function": ('Relu(call("F", x))', ""),
    "unsatisfiable": ("Relu(Neg(x))", "no graph was found"),
}


@pytest.mark.parametrize(("pattern", "reason"), NOT_TRIED.values(), ids=NOT_TRIED)
def test_what_cannot_be_made_up_is_not_tried(
    dpl: Dpl, write: Write, pattern: str, reason: str
) -> None:
    """That is a failure, and the reason is given."""
    where = (
        ["x.rank == 2 and x.shape[0] * x.shape[0] == 7"] if reason.startswith("no graph") else []
    )
    path = write(patterns=[{"name": "r", "pattern": pattern, "where": where}])
    found = record(dpl("patterns", "test", path, "--json", "-"), 1)

    (trial,) = found["trials"]
    assert (trial["verdict"], found["failed"], found["not_tried"]) == ("not tried", 0, 1)
    assert trial["reason"]
    assert reason in trial["reason"]
    assert trial["reason"] in dpl("patterns", "test", path).out


def test_an_installed_dpl_lacks_the_examples_of_shipped_catalogues(
    dpl: Dpl, write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that only they show is no failure there; report and contract say where they are."""
    monkeypatch.setattr(finding, "_INSTALLED", folder / "installed")
    (folder / "installed").mkdir()
    rules = [{"name": "r", "pattern": "com.acme.Gelu(x)"}]
    mine = write(patterns=rules)
    write(name="installed/shipped.yaml", patterns=rules)

    tested, own = (dpl("patterns", "test", name, "-v") for name in ("shipped", mine))
    shown, own_shown = (dpl("patterns", "contract", name) for name in ("shipped", mine))

    assert (tested.code, own.code, shown.code) == (0, 1, 0)
    assert "by example: nothing is known of com.acme.Gelu; its examples" in tested.out
    assert "of com.acme.Gelu; its examples come with the sources of dpl" in shown.out
    assert "\nThe examples of shipped catalogues come with the sources of dpl" in tested.out
    assert "sources" not in own.out + own_shown.out + dpl("patterns", "test", "Relu(Abs(x))").out


def test_verbose_lists_every_trial(dpl: Dpl, write: Write) -> None:
    """Without it only failures are listed."""
    path = write(rewrites=[{**SELF, "examples": [{"before": ADD}]}])
    call = ("patterns", "test", path, "--trials", 20)
    brief, full = dpl(*call).out, dpl(*call, "-v").out

    assert "2 passed, 0 failed." in brief
    assert "20 graphs: passed" not in brief
    assert "r, made up 20 graphs: passed" in full


def test_how_many_graphs_and_which(dpl: Dpl, write: Write) -> None:
    """--trials says how many, --seed which; none at all is wrong usage."""
    path = write(rewrites=[SELF])
    (trial,) = record(dpl("patterns", "test", path, "--trials", "3", "--json", "-"))["trials"]
    assert (trial["graphs"], trial["place"]) == (3, "3 graphs")

    wrong = write(rewrites=[SELF | {"replacement": "Mul(x, 3.0)"}])
    first, again = (
        record(dpl("patterns", "test", wrong, "--seed", "7", "--json", "-"), 1) for _ in range(2)
    )
    assert first == again
    for option in ("--trials=0", "--seed=-1", "--trials=many"):
        assert dpl("patterns", "test", path, option).code == 2


def test_reports_hold_the_counterexample(dpl: Dpl, write: Write, folder: Path) -> None:
    """JUnit, SARIF and Markdown, whole; a rule that is not tried is a failure there, too."""
    wrong = {"name": "w", "pattern": "Sub(x, y)", "replacement": "Add(x, y)"}
    idle = {"name": "i", "pattern": "Relu(x)", "where": ["x.rank == 9"], "replacement": "x"}
    path = write(rewrites=[wrong, idle])
    forms = {form: f"report.{form}" for form in ("junit", "sarif", "markdown")}
    options = [word for form, name in forms.items() for word in (f"--{form}", name)]

    assert dpl("patterns", "test", path, *options).code == 1
    for name in forms.values():
        text = (folder / name).read_text(encoding="utf-8")
        assert "Sub (x, leaf_1)" in text or "Sub (x, y)" in text
        assert "x.rank == 9" in text


def test_one_rule_only_is_tried(dpl: Dpl, write: Write) -> None:
    """--rule leaves the failure of another out."""
    wrong = {"name": "wrong", "pattern": "Sub(x, y)", "replacement": "Add(x, y)"}
    path = write(rewrites=[SELF, wrong])

    call = ("patterns", "test", path, "--trials", 5)
    assert dpl(*call).code == 1
    found = record(dpl(*call, "--rule", "r", "--json", "-"))
    assert {trial["rule"] for trial in found["trials"]} == {"r"}


@pytest.mark.long
def test_the_same_bytes_in_every_run(dpl_process: Dpl, write: Write) -> None:
    """Nothing depends on hashing or on time."""
    path = write(rewrites=[SELF | {"replacement": "Mul(x, 3.0)"}], patterns=outline("Neg(Relu(x))"))
    for command, code in (("test", 1), ("check", 0), ("show", 0)):
        seen = set()
        for seed in ("0", "4711"):
            answer = dpl_process("patterns", command, path, "--json", "-", PYTHONHASHSEED=seed)
            assert answer.code == code, answer
            seen.add(answer.out)
        assert len(seen) == 1


# -- schema ------------------------------------------------------------------------------------


def objections(schema: Json, data: object, root: Json, where: str = "") -> list[str]:
    """Compare *data* with a JSON Schema, as far as the schema of catalogues goes."""
    schema = (
        root["$defs"][schema["$ref"].rpartition("/")[2]] | schema if "$ref" in schema else schema
    )
    if "anyOf" in schema:
        ways = [objections(way, data, root, where) for way in schema["anyOf"]]
        return [] if [] in ways else ways[0]
    types: dict[str, Any] = {"string": str, "integer": int, "number": (int, float)}
    types |= {"object": dict, "array": list, "null": type(None)}
    wanted = schema.get("type")
    if wanted is not None and (not isinstance(data, types[wanted]) or isinstance(data, bool)):
        return [f"{where}: {data!r} is no {wanted}"]
    found = []
    if "const" in schema and data != schema["const"]:
        found.append(f"{where}: not {schema['const']!r}")
    if "enum" in schema and data not in schema["enum"]:
        found.append(f"{where}: not one of {schema['enum']}")
    if isinstance(data, str) and not re.search(schema.get("pattern", ""), data):
        found.append(f"{where}: {data!r} does not fit {schema['pattern']}")
    if isinstance(data, dict):
        found += _of_mapping(schema, data, root, where)
    if isinstance(data, list):
        for number, item in enumerate(data):
            found += objections(schema.get("items", {}), item, root, f"{where}/{number}")
        if not schema.get("minItems", 0) <= len(data) <= schema.get("maxItems", len(data)):
            found.append(f"{where}: {len(data)} items")
    return found


def _of_mapping(schema: Json, data: Json, root: Json, where: str) -> list[str]:
    known = schema.get("properties", {})
    extra = schema.get("additionalProperties", True)
    if "patternProperties" in schema:
        extra = next(iter(schema["patternProperties"].values()))
    found = [f"{where}: {key} is missing" for key in schema.get("required", ()) if key not in data]
    for key, item in data.items():
        if key in known:
            found += objections(known[key], item, root, f"{where}/{key}")
        elif extra is False:
            found.append(f"{where}: unknown key {key}")
        elif isinstance(extra, dict):
            found += objections(extra, item, root, f"{where}/{key}")
    return found


@pytest.fixture
def schema(dpl: Dpl) -> Json:
    """Return the schema as printed."""
    return record(dpl("patterns", "schema"))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_schema_accepts_what_dpl_ships(schema: Json, name: str) -> None:
    """Every shipped catalogue."""
    data = ruamel.yaml.YAML(typ="safe").load(ROOT / "patterns" / f"{name}.yaml")

    assert schema["$schema"].startswith("https://json-schema.org/")
    assert objections(schema, data, schema) == []


@pytest.mark.parametrize(
    ("change", "objection"),
    [
        ({}, ""),
        ({"dpl": 2}, "not 1"),
        ({"pattern": []}, "unknown key pattern"),
        ({"patterns": [{"name": "r"}]}, "pattern is missing"),
        ({"patterns": outline("Relu(x)", wher=[])}, "unknown key wher"),
        ({"patterns": outline("Relu(x)", where="x.rank == 4")}, ""),
        ({"patterns": outline("Relu(x)", escape="sometimes")}, "not one of"),
        ({"patterns": outline("Relu(x)", replacement="x")}, "unknown key replacement"),
        ({"rewrites": becomes("Relu(x)", "x", escape="outputs")}, "not one of"),
        ({"patterns": [{"name": "a b", "pattern": "Relu(x)"}]}, "does not fit"),
        ({"patterns": outline("Relu(x)", opsets=[])}, "0 items"),
        ({"patterns": outline("Relu(x)", examples=[{"after": "any"}])}, "before is missing"),
        ({"patterns": outline("${op}(x)", for_each={"op": ["Relu"]})}, ""),
        ({"patterns": outline("${op}(x)", for_each=[{"op": "Relu"}])}, ""),
        ({"patterns": outline("${op.is}(x)", for_each={"op": {"relu": {"is": "Relu"}}})}, ""),
        ({"patterns": outline("Relu(x)", for_each={"op": []})}, "0 items"),
        ({"patterns": outline("Relu(x)", for_each={"op": "Relu"})}, "is no array"),
        ({"patterns": outline("Relu(x)", except_=[])}, "unknown key except_"),
        ({"fragments": {"f": "Relu(x)"}, "patterns": outline("${f}")}, ""),
        ({"fragments": {"f": {"where": []}}, "patterns": outline("${f}")}, "is no string"),
        ({"patterns": outline("Relu(x)", escape="${e}", for_each=[{"e": "refuse"}])}, ""),
    ],
)
def test_the_schema_and_the_loader_agree(
    dpl: Dpl, write: Write, schema: Json, change: Json, objection: str
) -> None:
    """What the schema objects to is refused, and the rest is loaded."""
    content: Json = {"patterns": outline("Relu(x)"), **change}
    found = objections(schema, {"dpl": 1, "target": "t", **content}, schema)
    answer = dpl("patterns", "show", write(**content))

    assert bool(found) == bool(objection)
    assert answer.code == (2 if objection else 0)
    if objection:
        assert any(objection in item for item in found)
