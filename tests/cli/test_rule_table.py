"""Which rules have a row in the tables, and what is said of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.support import Dpl, Save

MODEL = """
g (float[2] x) => (float[2] y, float[2] a)
<float[1] c = {3}, int64[1] s = {90000}, float[1] v = {1}> {
  a = Exp(x) b = Mul(a, c) d = Add(b, c) e = Neg(d) f = Expand(v, s) m = ReduceMax(f) y = Div(e, m)
}"""
RULES = {
    "one": "{name: one, pattern: 'Add(x, const(c))', where: [all(c.value == 0)], replacement: x}",
    "either": "{name: either, pattern: 'Add(x, const(c)) | Mul(x, const(c))',"
    " where: [all(c.value == 0)], replacement: x}",
    "two": "{name: two, pattern: 'Neg(Add(x, const(c)))', where: [all(c.value == 0)],"
    " replacement: 'Neg(x)'}",
    "apart": "{name: apart, pattern: 'Mul(Exp(x), const(c))', replacement: 'Exp(x)'}",
    "fold": "{name: fold, function: fold_constants}",
    "hit": "{name: hit, pattern: 'Add(x, const(c)) | Mul(x, const(c))', where: ['x.name == \"b\"'],"
    " replacement: 'Sub(x, const(-c.value))'}",
    "none": "{name: none, pattern: 'Relu(x)', replacement: x}",
    "nil": "{name: nil, pattern: 'Tanh(x)', replacement: x}",
}


def shown(dpl: Dpl, save: Save, folder: Path, *names: str, options: tuple[str, ...] = ()) -> str:
    """Return what is printed of the rules *names*, runs of spaces as one."""
    save(MODEL)
    rules = "".join(f"  - {RULES[name]}\n" for name in names)
    (folder / "rules.yaml").write_text(f"dpl: 1\nrewrites:\n{rules}", encoding="utf-8")
    answer = dpl("rewrite", "m.onnx", "-p", "rules.yaml", "--dry-run", *options)
    assert answer.code == 0, answer.err
    return "\n".join(
        " ".join(line.split()) for line in answer.out.partition("\n\n")[0].splitlines()
    )


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("two", "two 0 1", " where: 'all(c.value == 0)' does not hold"),
        ("apart", "apart 0 1 escape: 'a' is a graph output", ""),
        ("fold", "fold 0 1 check: 360,000 bytes of constants are more than", ""),
        ("hit", "hit 1 1", " where: 'x.name == \"b\"' does not hold"),
    ],
)
def test_a_rule_that_fits_and_is_refused_has_a_row(  # noqa: PLR0913, PLR0917  # a case
    dpl: Dpl, save: Save, folder: Path, name: str, row: str, reason: str
) -> None:
    """Several nodes that fit, a reason that no condition gives, or one that is applied, too.

    That a condition does not hold is told to who asks: nobody can do anything about it.
    """
    text = shown(dpl, save, folder, name, "none")
    told = shown(dpl, save, folder, name, "none", options=("--verbose",))
    hidden = "Other refusals: a condition does not hold (--verbose says which)."

    assert f"{row}{reason}" in told
    assert (hidden in text.splitlines()) == bool(reason)
    assert not reason or reason not in text
    assert hidden not in told

    assert row in text
    assert "1 other rule does not apply." in text.splitlines()


@pytest.mark.parametrize(("name", "refused"), [("one", 1), ("either", 2)])
def test_one_node_that_conditions_refuse_has_none(
    dpl: Dpl, save: Save, folder: Path, name: str, refused: int
) -> None:
    """Its operator is there, which says nothing; all is told when asked for."""
    row = f"{name} 0 {refused} where: 'all(c.value == 0)' does not hold"
    beside = shown(dpl, save, folder, "two", name, "none")
    told = shown(dpl, save, folder, "two", name, "none", options=("--verbose",))

    assert f"\n{name} " not in beside
    others = "2 other rules do not apply; 1 of them was refused (--verbose shows why)."
    assert others in beside.splitlines()
    assert f"\n{row}" in told
    assert "1 other rule does not apply." in told.splitlines()


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("none",), "The rule does not apply."),
        (("one",), "The rule does not apply (--verbose shows why)."),
        (("none", "nil"), "None of the 2 rules applies."),
        (
            ("none", "one", "either"),
            "None of the 3 rules applies; 2 of them were refused (--verbose shows why).",
        ),
    ],
)
def test_nothing_but_rules_without_a_row(
    dpl: Dpl, save: Save, folder: Path, names: tuple[str, ...], told: str
) -> None:
    """One sentence takes the place of the table."""
    assert shown(dpl, save, folder, *names).splitlines()[0] == told


@pytest.mark.parametrize(
    ("ops", "told"),
    [
        (("Relu",), "The rule does not match."),
        (("Relu", "Tanh"), "None of the 2 rules matches."),
        (("Neg", "Tanh"), "1 other rule does not match."),
        (("Neg", "Tanh", "Relu"), "2 other rules do not match."),
    ],
)
def test_matching_has_words_of_its_own(
    dpl: Dpl, save: Save, folder: Path, ops: tuple[str, ...], told: str
) -> None:
    """A pattern matches, a rewrite applies."""
    save(MODEL)
    rules = "".join(f"  - {{name: {op.lower()}, pattern: '{op}(x)'}}\n" for op in ops)
    (folder / "rules.yaml").write_text(f"dpl: 1\ntarget: t\npatterns:\n{rules}", encoding="utf-8")

    lines = dpl("match", "m.onnx", "-p", "rules.yaml").out.splitlines()
    hint = "hint: dpl explain, with the same arguments, says why"
    assert [line for line in lines if line != hint][-1] == told
    assert (hint in lines) == (len(lines) == 2)  # nothing matches: there is no table
