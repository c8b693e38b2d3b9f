"""Facts about operators stand in one place, so that one who adds an operator edits one file."""

import ast
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from dplcli.ir.operators import OP_KINDS

PACKAGE = Path(__file__).parents[2] / "dplcli"
TABLE = "ir/operators.py"
BY_VERSION = "onnx_io/opset.py"
"""Says what each version of an operator changed, which is over and done."""
STANDARD = frozenset().union(*OP_KINDS.values()) | {
    schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""
}
MANY = 5
WHY_ELSEWHERE = {
    ("shapes/rules.py", "CONTENT_RULES"): "by operator the rule itself, which is code",
    ("shapes/rules.py", "SHAPE_RULES"): "by operator the rule itself, which is code",
    ("shapes/rules.py", "WINDOW_RULES"): "by operator the rule itself, which is code",
    ("rewrites/operands.py", "_BEHIND"): "by operator the way through it, which is code",
    ("language/expression.py", "_SIGNS"): "how the language spells them",
    ("catalog/sketch.py", "_KIND_EXAMPLES"): "one example per class",
    ("pipeline/sampling.py", "_MODES"): "by operator the values of an attribute that are tried",
    ("pipeline/operands.py", "FORMS"): "by operator how its operands fit together",
    ("execute/translate.py", "_SAME_SHAPE"): "by operator what a library calls it",
    ("execute/translate.py", "_BROADCAST"): "by operator what a library calls it",
    ("execute/translate.py", "_UNDERSTOOD"): "by operator what the translator takes",
    ("execute/composites.py", "_ARITHMETIC"): "by operator what computes it",
    ("execute/composites.py", "_FIRST"): "what the forms that it knows begin with",
    ("rewrites/simplification.py", "_SLOWER"): "how slow onnx's evaluator is at each",
    ("verify/behaviours.py", "PIECES"): "by operator what it may do, which is code",
    ("verify/behaviours.py", "_RESULTS"): "what each of them computes",
    ("verify/evaluator.py", "_REFUSED"): "by operator what onnx computes wrongly, which is code",
    ("verify/ranges.py", "_RULES"): "by operator the rule itself, which is code",
    ("verify/power.py", "_NEIGHBOURS"): "mistakes that are made on purpose, a choice of some",
}


def collections_of_names(source: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the literal collections in *source* that name operators, and where they stand.

    A text of names counts as one, and so do the keys, and the values, of a dictionary.
    """
    for statement in ast.parse(source).body:
        where = getattr(statement, "name", "")
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            where = ast.unparse(target)
        for node in ast.walk(statement):
            texts: list[str] = []
            if isinstance(node, (ast.Set, ast.List, ast.Tuple, ast.Dict)):
                texts = [
                    inner.value
                    for inner in ast.walk(node)
                    if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
                ]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts = node.value.split()
                texts = texts if all(text[0].isupper() for text in texts) else []
            if texts:
                yield where, frozenset(STANDARD.intersection(texts))


def stray_facts(sources: dict[str, str]) -> set[tuple[str, str]]:
    """Return where modules other than the table list many operators."""
    return {
        (name, where)
        for name, source in sources.items()
        if name not in {TABLE, BY_VERSION}
        for where, found in collections_of_names(source)
        if len(found) >= MANY
    }


def test_operators_are_listed_in_the_table_alone() -> None:
    """Elsewhere for a reason only, and each reason is still needed."""
    sources = {
        path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
        for path in PACKAGE.rglob("*.py")
    }

    assert stray_facts(sources) == WHY_ELSEWHERE.keys()


@pytest.mark.parametrize(
    "source",
    [
        'ADDS = {"Add", "Sub", "Mul", "Div", "Neg"}',
        'ADDS = frozenset({"Add"} | {"Mul"}) | {"Pow", "Add", "Sub", "Mod", "Abs"}',
        'ADDS: dict[str, int] = {"Add": 1, "Sub": 1, "Mul": 1, "Div": 1, "Neg": 1}',
        'ADDS = {("Add", 0), ("Sub", 0), ("Mul", 0), ("Div", 0), ("Neg", 0)}',
        'ADDS = "Add Sub Mul Div Neg".split()',
        'ADDS = "Add Sub Mul Div Neg FusedMatMul MatMulNBits".split()',
        'def ADDS():\n    return op in ("Add", "Sub", "Mul", "Div", "Neg")',
    ],
)
def test_a_list_of_operators_is_found(source: str) -> None:
    """In whatever form it is written."""
    assert stray_facts({"passes/new.py": source}) == {("passes/new.py", "ADDS")}
    assert stray_facts({TABLE: source}) == set()


@pytest.mark.parametrize(
    "source",
    [
        'ADDS = {"Add", "Sub", "Mul", "Div"}',
        'ADDS = {"Add", "Sub", "Mul", "Div", "FusedMatMul"}',
        'ADDS = "Add, or Sub, or Mul and Div and Neg"',
        'def a():\n    """Add Sub Mul Div Neg of a graph."""',
    ],
)
def test_a_few_names_and_a_sentence_are_no_list(source: str) -> None:
    """Four operators, names of others, prose."""
    assert stray_facts({"passes/new.py": source}) == set()
