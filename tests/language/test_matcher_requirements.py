"""What a pattern with alternatives needs of a graph, before any node is looked at."""

from functools import cache
from pathlib import Path

import pytest

from dplcli.catalog import read_catalogs, shipped_catalogs
from dplcli.language import DFPattern, Matcher
from dplcli.language.matcher import OpIndex
from dplcli.onnx_io import load_model
from tests.corpus.nets import ROOT, SAMPLES, listed_models, real_model
from tests.support.helpers import SCHEMAS, find_solutions, model_from_text, pattern_of, thinned

CONV = "t = Conv (x, k) y = Relu (t)"
GEMM = "t = Gemm (a, b) y = Relu (t)"


@pytest.mark.parametrize(
    ("pattern", "body", "roots"),
    [
        ("Relu(Gemm(x, w) | MatMul(x, w))", CONV, 0),
        ("Relu(Gemm(x, w) | MatMul(x, w))", GEMM, 1),
        ("Relu(MatMul(x, w) | Gemm(x, w))", GEMM, 1),
        ("Relu(Gemm(x, w) | Add(MatMul(x, w), b))", CONV, 0),
        ("Relu(Neg(Gemm(x, w)) | Abs(Gemm(x, w)))", GEMM, 0),
        ("Relu((Gemm(x, w) | MatMul(x, w)) | Conv(x, w))", CONV, 1),
        ("Relu(Gemm(x, w) | x)", CONV, 1),
        ("Relu(optional(Gemm)(x, w))", CONV, 1),
        ("Relu(~Gemm(x, w))", CONV, 1),
        ("Relu(x) | Gemm(x, w)", CONV, 1),
        ("Abs(x) | Gemm(x, w)", CONV, 0),
    ],
)
def test_a_pattern_is_not_tried_where_each_alternative_lacks_an_operator(
    pattern: str, body: str, roots: int
) -> None:
    """And is tried wherever one of them might be found."""
    model = model_from_text(
        "g (float[1, 3, 6, 6] x, float[4, 3, 3, 3] k, float[2, 3] a, float[3, 4] b) => (y) "
        f"{{ {body} }}"
    )
    program = Matcher(pattern_of(pattern)).program

    assert len(OpIndex(model.graph).candidates(program.demand, by_edges=False)) == roots


@pytest.mark.parametrize(
    ("pattern", "roots"),
    [
        ("Relu(Identity(x))", 1),
        ("Relu(Identity(Abs(x)))", 1),
        ("Relu(Abs(x))", 1),
        ("Identity(Identity(x))", 2),
        ("Neg(Identity(x))", 0),
        ("Relu(Neg(x))", 0),
    ],
)
def test_an_edge_may_lead_from_an_identity_or_from_what_it_copies(pattern: str, roots: int) -> None:
    """So a pattern that names the Identity is tried as well as one that does not."""
    model = model_from_text(
        "g (float[2] a) => (y, n) { b = Abs(a) c = Identity(b) d = Identity(c) y = Relu(d) "
        "n = Neg(b) }"
    )
    program = Matcher(pattern_of(pattern)).program

    assert len(OpIndex(model.graph).candidates(program.demand, by_edges=True)) == roots


def test_many_alternatives_compile_at_once() -> None:
    """What they need together is not worked out beyond a bound."""
    deep = "Relu(x)"
    for number in range(12):
        deep = (
            f"Add(Mul(Neg({deep}), Abs(a{number})) | Sub(Exp({deep}), Log(b{number})), c{number})"
        )
        if len(deep) > 20_000:
            break
    assert all(len(part) < 1_000 for part in Matcher(pattern_of(deep)).program.root.required)
    assert len(Matcher(pattern_of(deep)).program.root.required) < 1_000


@cache
def shipped_patterns() -> list[DFPattern]:
    """Return the patterns of all shipped catalogues, equal ones once."""
    read = [read_catalogs([name], SCHEMAS, with_examples=False) for name in shipped_catalogs()]
    found = [rule.pattern for each in read for rule in (*each.patterns, *each.rewrites)]
    return list({repr(pattern): pattern for pattern in found}.values())


def check_shipped(path: Path) -> int:
    """Search for each shipped pattern at every node; return how often they match."""
    model = load_model(path)
    return sum(len(find_solutions(pattern, model)) for pattern in shipped_patterns())


@pytest.mark.parametrize("model", sorted(SAMPLES.values()))
def test_shipped_patterns_are_tried_wherever_they_match(model: str) -> None:
    """In the sample models."""
    assert check_shipped(ROOT / "sample_models" / f"{model}.onnx")


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(16, listed_models(), first=7))
def test_shipped_patterns_in_real_models(name: str) -> None:
    """The same in every sixth model of the corpus."""
    check_shipped(real_model(name))
