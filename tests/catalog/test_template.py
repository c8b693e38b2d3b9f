"""``for_each``, ``except``, ``when`` and ``fragments``: one entry, many rules."""

from pathlib import Path
from textwrap import dedent

import pytest

from dplcli.catalog import Catalog, read_catalogs
from dplcli.catalog.catalog import write_catalog
from dplcli.errors import CatalogError
from dplcli.language import parse_pattern
from dplcli.language.pattern import CallPattern, DFPattern
from dplcli.language.rule import PatternRule
from tests.support.helpers import SCHEMAS

HEAD = "dpl: 1\ntarget: t\npatterns:\n"


def write(folder: Path, text: str, name: str = "c.yaml") -> Path:
    """Write a catalogue; one without a header gets it."""
    path = folder / name
    text = dedent(text)
    path.write_text(text if text.startswith("dpl:") else f"{HEAD}{text}")
    return path


def read(folder: Path, text: str) -> Catalog:
    """Read a catalogue."""
    return read_catalogs([str(write(folder, text))], SCHEMAS)


def failure(folder: Path, text: str) -> str:
    """Return the message and the hint of what is wrong in a catalogue."""
    with pytest.raises(CatalogError) as caught:
        read(folder, text)
    return f"{caught.value.message}\n{caught.value.hint or ''}"


def pointed_at(message: str) -> tuple[str, str]:
    """Return the first line of a message, and what its caret points at."""
    lines = message.split("\n")
    number = next(n for n, line in enumerate(lines) if line.strip() == "^")
    return lines[0], lines[number - 1][lines[number].index("^") :]


def same(rule: PatternRule, text: str) -> bool:
    """Tell whether a rule has the pattern that *text* says."""
    return rule.pattern == parse_pattern(text, SCHEMAS) or repr(rule.pattern) == repr(
        parse_pattern(text, SCHEMAS)
    )


# -- what is made --------------------------------------------------------------------------------


def test_the_last_variable_changes_fastest(tmp_path: Path) -> None:
    """The order of nested loops, the first variable outside; it is the order of priority."""
    text = """\
      - name: first
        pattern: Abs(x)
      - for_each:
          bias: [with, without]
          act: {relu: {op: Relu}, tanh: {op: Tanh}}
          rank: [3, 4]
        except:
          - {bias: without, act: tanh}
          - {act: [relu, tanh], rank: 4, bias: with}
        name: conv${rank}_${bias}_${act}
        doc: ${act.op} of rank ${rank}
        pattern: ${act.op}(x.has_rank(${rank}))
        where: ["x.name != '${bias}'"]
      - name: last
        pattern: Neg(x)
    """
    rules = read(tmp_path, text).patterns

    assert [rule.name for rule in rules] == [
        *("first", "conv3_with_relu", "conv3_with_tanh"),
        *("conv3_without_relu", "conv4_without_relu", "last"),
    ]
    assert same(rules[2], "Tanh(x.has_rank(3))")
    assert rules[4].doc == "Relu of rank 4"
    assert [condition.text for condition in rules[4].where] == ["x.name != 'without'"]
    assert rules[4].values == {"bias": "without", "act": "relu", "rank": "4"}
    assert rules[4].origin == "c.yaml:13"
    assert rules[0].values == {}


def test_a_list_holds_the_combinations_themselves(tmp_path: Path) -> None:
    """Values that belong together are not combined each with each."""
    rules = read(
        tmp_path,
        """\
        - for_each: [{op: Relu, rank: 4}, {op: Abs, rank: 3}]
          name: r_${op}
          pattern: ${op}(x.has_rank(${rank}))
        """,
    ).patterns

    assert [rule.name for rule in rules] == ["r_Relu", "r_Abs"]
    assert same(rules[1], "Abs(x.has_rank(3))")


def test_references_are_replaced_in_every_text(tmp_path: Path) -> None:
    """Policies, metadata, opsets, replacements and examples too; ``$${`` is ``${``."""
    catalog = read(
        tmp_path,
        """\
        - for_each: [{op: Relu, policy: embed, since: 13, first: -2}]
          name: r
          doc: $${op} $op {op} ${op}
          pattern: ${op}(x)
          constants: ${policy}
          escape: duplicate
          opsets: ["${since}", 20]
          priority: ${first}
          attrs: {kind: "a ${op}"}
          examples: [{before: "${op}", after: "${op} after"}]
        rewrites:
          - for_each: {op: [Relu, Abs]}
            name: w_${op}
            pattern: ${op}(${op}(x))
            replacement: ${op}(x)
        """,
    )
    rule = catalog.patterns[0]

    assert rule.doc == "${op} $op {op} Relu"
    assert rule.constants == "embed"
    assert rule.opsets == (13, 20)
    assert rule.priority == -2
    assert rule.metadata == {"kind": "a Relu"}
    assert (rule.examples[0].before, rule.examples[0].after) == ("Relu", "Relu after")
    assert [other.becomes for other in catalog.rewrites] == ["Relu(x)", "Abs(x)"]


def test_examples_are_for_all_rules_or_for_some(tmp_path: Path) -> None:
    """``when`` chooses; an example keeps the line that it is written at."""
    rules = read(
        tmp_path,
        """\
        - for_each: {op: [Relu, Abs, Neg]}
          name: r_${op}
          pattern: ${op}(x)
          examples:
            - when: {op: [Abs, Neg]}
              before: some ${op}
            - before: all ${op}
            - when: {op: Abs}
              before: one
        """,
    ).patterns

    assert [[example.before for example in rule.examples] for rule in rules] == [
        ["all Relu"],
        ["some Abs", "all Abs", "one"],
        ["some Neg", "all Neg"],
    ]
    assert [example.origin for example in rules[1].examples] == [f"c.yaml:{n}" for n in (9, 10, 12)]


def test_a_fragment_brings_its_lines_and_its_conditions(tmp_path: Path) -> None:
    """The expression in brackets, the other lines before the statement, both conditions."""
    text = """\
    dpl: 1
    target: t
    fragments:
      bell:
        pattern: |
          # with a comment
          _scaled = Div(t, const(root))
          Add(Erf(_scaled), 1.0) | Sub(1.0, Erf(Neg(_scaled)))  # and another
        where: ["is_close(root, 1.4142)"]
      gelu: |
        Gelu(t) | Mul(
          Mul(t, ${bell}), 0.5)
    patterns:
      - for_each: {op: [Relu, Abs]}
        name: r_${op}
        pattern: |
          t = Conv(x, w)  # not in comments: ${nothing}
          ${op}(
            ${gelu})
        where: [t.rank == 4]
      - name: twice
        pattern: |
          t = Conv(x, w)
          Add(${bell}, Neg(${bell}))
    """
    rules = read(tmp_path, text).patterns

    assert same(
        rules[1],
        dedent("""\
        t = Conv(x, w)
        _scaled = Div(t, const(root))
        Abs(Gelu(t) | Mul(Mul(t, Add(Erf(_scaled), 1.0) | Sub(1.0, Erf(Neg(_scaled)))), 0.5))
        """),
    )
    assert [item.text for item in rules[1].where] == ["t.rank == 4", "is_close(root, 1.4142)"]
    assert repr(rules[2].pattern).count("Div(") == 1
    assert [item.text for item in rules[2].where] == ["is_close(root, 1.4142)"]


def test_brackets_keep_an_alternative_together(tmp_path: Path) -> None:
    """A method after the reference is asked of all of the fragment."""
    text = """\
    dpl: 1
    target: t
    fragments: {act: Relu(x) | Abs(x)}
    patterns: [{name: r, pattern: "${act}.has_rank(4)"}]
    """

    assert same(read(tmp_path, text).patterns[0], "(Relu(x) | Abs(x)).has_rank(4)")


def test_a_fragment_is_a_tree(tmp_path: Path) -> None:
    """It stands for an operator, too, or for several outputs; a variable may name it."""
    text = """\
    dpl: 1
    target: t
    fragments:
      ops: Add | Sub
      whole: |
        t = ${ops}(x, y)
        Relu(t), t
    patterns:
      - {for_each: {op: ["${ops}"]}, name: r, pattern: "${op}(x, Neg(y))"}
      - {name: s, pattern: "${whole}"}
    """
    first, second = read(tmp_path, text).patterns

    assert same(first, "(Add | Sub)(x, Neg(y))")
    assert same(second, "t = (Add | Sub)(x, y)\nRelu(t), t")


def test_fragments_of_included_files(tmp_path: Path) -> None:
    """A file may hold nothing but fragments, and those that include it see them."""
    write(tmp_path, "dpl: 1\nfragments: {act: Relu(x)}\n", "parts.yaml")
    write(tmp_path, "dpl: 1\ninclude: [parts.yaml]\nfragments: {two: 'Neg(${act})'}\n", "more.yaml")
    text = "dpl: 1\ntarget: t\ninclude: [parts.yaml, more.yaml]\n"
    rules = read(tmp_path, f"{text}patterns: [{{name: r, pattern: 'Abs(${{two}})'}}]\n").patterns

    assert same(rules[0], "Abs(Neg(Relu(x)))")
    own = f"{text}fragments: {{act: Abs(x)}}\n"
    assert "'act' is defined already, in parts.yaml" in failure(tmp_path, own)


def test_an_empty_condition_is_left_out(tmp_path: Path) -> None:
    """So a condition can hold for some of the values."""
    text = """\
        - for_each: {root: {conv: {op: Conv, must: x.rank == 4}, dense: {op: MatMul, must: ""}}}
          name: r_${root}
          pattern: ${root.op}(x, w)
          where: ["${root.must}", "x.dtype == 'float32'"]
    """
    first, second = read(tmp_path, text).patterns

    assert [item.text for item in first.where] == ["x.rank == 4", "x.dtype == 'float32'"]
    assert [item.text for item in second.where] == ["x.dtype == 'float32'"]


def test_what_is_written_from_python_reads_back(tmp_path: Path) -> None:
    """A doc that has ``${`` in it is not taken for a reference."""
    rule = PatternRule(
        target="t", name="r", pattern=parse_pattern("Abs(x)", SCHEMAS), doc="a $${b}"
    )
    path = tmp_path / "made.yaml"
    path.write_text(write_catalog([rule]))

    assert read_catalogs([str(path)], SCHEMAS).patterns[0].doc == "a $${b}"
    odd = PatternRule(target="t", name="r${x}", pattern=rule.pattern)
    with pytest.raises(CatalogError, match="is not a name"):
        write_catalog([odd])


def test_what_the_page_on_catalogues_shows(tmp_path: Path) -> None:
    """The rules that its comment names."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "catalogues.md"
    block = next(
        part
        for part in page.read_text(encoding="utf-8").split("```yaml\n")
        if part.startswith("fragments:")
    )
    rules = read(tmp_path, f"dpl: 1\ntarget: t\n{block.partition('```')[0]}").patterns

    assert [rule.name for rule in rules] == [
        *("conv1d_bias_relu", "conv2d_bias_relu", "conv1d_bias_tanh", "conv2d_bias_tanh"),
        "conv2d_bias_swish",
    ]
    assert same(
        rules[1],
        "conv = Conv(x, w.has_rank(4))\nt = Conv(x, w.has_rank(4), b) | Add(conv, b)\nRelu(t)",
    )


# -- where it is ---------------------------------------------------------------------------------

PLACES = """\
dpl: 1
target: t
fragments:
  part:
    pattern: |
      _a = ${op.first}(x)
      FRAGMENT(_a)
    where: ["CONDITION"]
patterns:
  - for_each:
      op:
        one: {first: Abs}
        two: {first: VALUE}
    name: r_${op}
    pattern: |
      b = ${part}
      RULE(b)
"""
GOOD = {"VALUE": "Exp", "FRAGMENT": "Neg", "RULE": "Relu", "CONDITION": "x.rank == 4"}


def filled(**changed: str) -> str:
    """Return the catalogue with what is wrong in one place."""
    text = PLACES
    for word, good in (GOOD | changed).items():
        text = text.replace(word, good)
    return text


@pytest.mark.parametrize(
    ("wrong", "line", "points_at", "names"),
    [
        ({"VALUE": "Rleu"}, 13, "Rleu}", "rule 'r_two' (op=two)"),
        ({"FRAGMENT": "Rleu"}, 7, "Rleu(_a)", "rule 'r_one' (op=one)"),
        ({"RULE": "Rleu"}, 17, "Rleu(b)", "rule 'r_one' (op=one)"),
        ({"CONDITION": "z.rank == 4"}, 8, "z.rank", "rule 'r_one' (op=one)"),
        ({"RULE": "Relu(x, "}, 17, "(x, (b)", "rule 'r_one' (op=one)"),
        ({"FRAGMENT": "Neg(x, "}, 7, "(x, (_a)", "rule 'r_one' (op=one)"),
        ({"FRAGMENT": "_b = Rleu"}, 7, "_b = Rleu", "rule 'r_one' (op=one)"),
    ],
)
def test_a_message_points_to_where_the_wrong_letters_are_written(
    tmp_path: Path, wrong: dict[str, str], line: int, points_at: str, names: str
) -> None:
    """In the rule, in a value of a variable, in a fragment: and says for which values."""
    first, shown = pointed_at(failure(tmp_path, filled(**wrong)))

    assert first.startswith(f"c.yaml:{line}:")
    assert names in first
    assert shown.startswith(points_at)


def argument(pattern: DFPattern) -> DFPattern:
    """Return the first argument of a call."""
    assert isinstance(pattern, CallPattern)
    assert isinstance(pattern.args, tuple)
    return pattern.args[0]


def test_parts_of_a_pattern_know_their_place(tmp_path: Path) -> None:
    """``explain`` says where the part that failed is written."""
    rule = read(tmp_path, filled()).patterns[1]
    inner = argument(rule.pattern)

    assert rule.place(rule.pattern) == "c.yaml:17:7"
    assert rule.place(inner) == "c.yaml:7:7"
    assert rule.place(argument(inner)) == "c.yaml:13:22"


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "says", "points_at"),
    [
        (
            "for_each: {a: [Relu]}, name: r, pattern: '${b}(x)'",
            "no variable or fragment 'b'",
            "${b",
        ),
        ("for_each: {opp: [Relu]}, name: r, pattern: '${op}(x)'", "mean 'opp'", "${op"),
        ("name: r, pattern: '${op}(x)'", "no variable or fragment 'op'", "${op"),
        ("name: r, doc: '${}', pattern: Abs(x)", "'${}' is not a name", "${}"),
        ("name: r, doc: 'a ${b', pattern: Abs(x)", "is not a name", "${b"),
        ("for_each: {a: [Abs]}, name: r, pattern: '${a.b}(x)'", "'a' has no 'b'", "${a.b"),
        ("for_each: {a: [Abs], b: [c]}, name: r, pattern: '${a}(x)'", "'b' is not used", "b: "),
        (
            "for_each: {a: [Abs, Neg]}, name: r, pattern: '${a}(x)'",
            "rule 'r' (a=Neg) is named like the one for a=Abs",
            "name: r",
        ),
        (
            "for_each: {a: [Abs, Abs]}, name: 'r${a}', pattern: Abs(x)",
            "'Abs' stands there twice",
            "",
        ),
        ("for_each: {a: []}, name: r, pattern: Abs(x)", "a: expected a list of values", "a: []"),
        ("for_each: {}, name: r, pattern: Abs(x)", "expected a mapping", "for_each"),
        ("for_each: Abs, name: r, pattern: Abs(x)", "expected a mapping", "for_each"),
        ("for_each: null, name: r, pattern: Abs(x)", "expected a mapping", "for_each"),
        ("for_each: {a: [true]}, name: r, pattern: Abs(x)", "a text or a number", "true"),
        ("for_each: {a: [[b]]}, name: r, pattern: Abs(x)", "a text or a number", "[b]"),
        ("for_each: {a: {b: c}}, name: r, pattern: Abs(x)", "a mapping from values", "b: c"),
        (
            "for_each: {a: {b: {c: d}, e: {}}}, name: r, pattern: Abs(x)",
            "only some of the values of 'a' have 'c'",
            "e: {}",
        ),
        (
            "for_each: [{a: b, c: d}, {a: e}], name: r, pattern: Abs(x)",
            "only some of the combinations have 'c'",
            "{a: e}",
        ),
        ("for_each: {a b: [c]}, name: r, pattern: Abs(x)", "'a b' is not a name", "a b"),
        (
            "for_each: {a: ['${a}']}, name: 'r${a}', pattern: Abs(x)",
            "'a' stands for itself",
            "${a}",
        ),
        ("for_each: {a: [b c]}, name: 'r${a}', pattern: Abs(x)", "'rb c' is not a name", "name"),
        ("for_each: {a: [b]}, name: 'r${a}', pattern: Abs(x), order: '${a}'", "order: input", ""),
        ("for_each: {a: [b]}, name: 'r${a}', pattern: Abs(x), opsets: ['${a}']", "opsets", ""),
        ("except: {a: b}, name: r, pattern: Abs(x)", "there is no for_each", "except"),
        ("for_each: {a: [b]}, except: {c: b}, name: 'r${a}', pattern: Abs(x)", "'c'", "c: b"),
        (
            "for_each: {a: [b]}, except: {a: c}, name: 'r${a}', pattern: Abs(x)",
            "'a' is never 'c'",
            "a: c",
        ),
        ("for_each: {a: [b]}, except: {a: b}, name: 'r${a}', pattern: Abs(x)", "is left", "except"),
        (
            "for_each: {a: [b, c]}, except: [{a: b}, {a: b}], name: 'r${a}', pattern: Abs(x)",
            "no combination that is left is like this",
            "{a: b}]",
        ),
        ("for_each: {a: [b]}, except: [], extra: 1, name: r, pattern: Abs(x)", "'extra'", "extra"),
        (
            "for_each: {a: [b]}, name: r, pattern: Abs(x), examples: [{when: {a: c}, before: x}]",
            "'a' is never 'c'",
            "a: c",
        ),
        ("name: r, pattern: Abs(x), examples: [{when: {a: c}, before: x}]", "variable 'a'", "a: c"),
    ],
)
def test_what_makes_no_sense_is_said(tmp_path: Path, entry: str, says: str, points_at: str) -> None:
    """One message, which points at what is wrong."""
    message = failure(tmp_path, f"{HEAD}  - {{{entry}}}\n")
    first, shown = pointed_at(message)

    assert first.startswith("c.yaml:4:")
    assert says in message
    assert shown.startswith(points_at)


@pytest.mark.parametrize(
    ("fragments", "use", "says"),
    [
        ("{f: '${f}'}", "${f}", "'f' stands for itself"),
        ("{f: '${g}', g: 'Abs(${f})'}", "${f}", "'f' stands for itself"),
        ("{f: ''}", "${f}", "the fragment 'f' is empty"),
        ("{f: '# nothing'}", "${f}", "the fragment 'f' is empty"),
        ("{f: a = Abs(x)}", "${f}", "must be an expression"),
        ("{f: Abs(x)}", "${g}", "there is no variable or fragment 'g'"),
        ("{f: Abs(x)}", 'Relu(input("${f}"))', "stands for a value, and none can stand here"),
        ("{f: Abs(x)}", "Relu(${f}y)", "the fragment 'f' stands for a value"),
        ("{a b: Abs(x)}", "Abs(x)", "is not a name"),
        ("{f: {pattern: Abs(x), wher: []}}", "${f}", "unknown key 'wher'"),
        ("{f: [Abs(x)]}", "${f}", "fragments.f"),
    ],
)
def test_bad_fragments(tmp_path: Path, fragments: str, use: str, says: str) -> None:
    """Refused where they are written or used."""
    text = f"dpl: 1\ntarget: t\nfragments: {fragments}\npatterns: [{{name: r, pattern: '{use}'}}]\n"

    assert says in failure(tmp_path, text)


def test_a_fragment_is_for_patterns_only(tmp_path: Path) -> None:
    """Nowhere else would its lines have a place."""
    text = "dpl: 1\ntarget: t\nfragments: {f: Abs(x)}\n"
    rule = "patterns: [{name: r, doc: 'is ${f}', pattern: '${f}'}]\n"

    assert "can stand in patterns only" in failure(tmp_path, text + rule)


def test_names_of_variables_and_fragments_differ(tmp_path: Path) -> None:
    """Else one of them would hide the other."""
    text = "dpl: 1\ntarget: t\nfragments: {f: Abs(x)}\n"
    rule = "patterns: [{for_each: {f: [Abs]}, name: r, pattern: '${f}(x)'}]\n"

    assert "there is a fragment 'f', too" in failure(tmp_path, text + rule)


def test_rules_of_two_entries_with_one_name(tmp_path: Path) -> None:
    """The other one's line is named, and the values that gave the name."""
    text = """\
        - {name: r_Abs, pattern: Neg(x)}
        - {for_each: {a: [Neg, Abs]}, name: "r_${a}", pattern: "${a}(x)"}
    """

    assert "'t.r_Abs' is defined already, at c.yaml:4 (for a=Abs)" in failure(tmp_path, text)


@pytest.mark.long
def test_nothing_grows_without_end(tmp_path: Path) -> None:
    """Products and nested fragments have bounds."""
    many = ", ".join(f"v{n}: [a, b]" for n in range(40))
    assert "more than 10,000 combinations" in failure(
        tmp_path, f"{HEAD}  - {{for_each: {{{many}}}, name: r, pattern: Abs(x)}}\n"
    )
    nested = ", ".join(f"f{n + 1}: 'Add(${{f{n}}}, ${{f{n}}})'" for n in range(60))
    text = f"dpl: 1\ntarget: t\nfragments: {{f0: Abs(x), {nested}}}\n"
    assert "more than 100,000 letters" in failure(
        tmp_path, f"{text}patterns: [{{name: r, pattern: '${{f60}}'}}]\n"
    )
