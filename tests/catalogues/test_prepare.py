"""The catalogue ``prepare``: its examples, its conditions, and models as exporters leave them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest

from dplcli import pipeline
from dplcli.catalog import read_catalogs
from dplcli.errors import DplError
from dplcli.onnx_io.scratch import model_from_text
from dplcli.passes.rewrite import rewrite
from dplcli.pipeline.proving import Trier
from dplcli.settings import MatchSettings, RewriteSettings
from tests.catalogues.near_misses import FEW
from tests.support.helpers import SCHEMAS, one_in, proto_from_text

if TYPE_CHECKING:
    from dplcli.language.replacement import RewriteRule

CATALOG = Path(__file__).parents[2] / "patterns" / "prepare.yaml"


@cache
def rules() -> dict[str, RewriteRule]:
    """Read the catalogue."""
    return {
        rule.name: rule
        for rule in read_catalogs([str(CATALOG)], SCHEMAS, with_examples=True).rewrites
    }


NAMES = list(rules())
CONDITIONS = [(name, number) for name in NAMES for number, _ in enumerate(rules()[name].where)]


@pytest.mark.parametrize("name", one_in(24, NAMES, gate=8))
def test_rules_do_what_they_say(name: str) -> None:
    """Every example comes out as written, equal in onnxruntime; so do graphs made up."""
    rule = rules()[name]
    trials = list(Trier(SCHEMAS, FEW).trials(rule))

    assert [(trial.place, trial.reason) for trial in trials if trial.verdict == "failed"] == []
    assert rule.doc
    assert {example.after == "unchanged" for example in rule.examples} == {True, False}


@pytest.mark.parametrize(("name", "number"), CONDITIONS)
def test_no_condition_is_idle(name: str, number: int) -> None:
    """Without any one of its conditions a rule takes a graph that the examples say it must not."""
    rule = rules()[name]
    loose = replace(rule, where=rule.where[:number] + rule.where[number + 1 :])

    assert any(_takes(loose, e.before) for e in rule.examples if e.after == "unchanged")


ENCODER = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[batch,seq] ids) => (float[batch,seq,4] y)
<float[1,4] words = {1, 2, 3, 4}, float[2,4] places = {1, 2, 3, 4, 5, 6, 7, 8}, float low = {-1e4},
 float[4,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}, float[4] b = {1, 2, 3, 4},
 int64 i = {0}, int64 j = {1}, int64[1] u = {0}, int64[1] v = {1}, int64[2] uv = {1, 2},
 int64[1] two = {2}, int64[1] four = {4}> {
    s = Shape (ids) n = Gather (s, i) l = Gather (s, j) batch = Unsqueeze (n, u)
    seq = Unsqueeze (l, u)
    word = Gather (words, ids) place = Slice (places, u, seq, u, v) x = Add (word, place)
    none = Equal (ids, i) mask = Unsqueeze (none, uv)
    split = Concat <axis = 0> (batch, seq, two, two) h = Reshape (x, split)
    q = Transpose <perm = [0, 2, 1, 3]> (h) k = Transpose <perm = [0, 2, 3, 1]> (h)
    p = MatMul (q, k) m = Where (mask, low, p) a = Softmax (m) t = MatMul (a, q)
    o = Transpose <perm = [0, 2, 1, 3]> (t) joined = Concat <axis = 0> (batch, seq, four)
    r = Reshape (o, joined) d = MatMul (r, w) e = Add (d, b) y = Add (x, e) }"""


def test_sizes_that_a_target_computes_are_known_by_its_numbers_too(tmp_path: Path) -> None:
    """Whether the sum of a residual is fused depends on sizes, which a 0 and a -1 do not hide."""
    before, after = tmp_path / "before.onnx", tmp_path / "after.onnx"
    onnx.save(proto_from_text(ENCODER), before)

    outcome = pipeline.rewrite(before, RewriteSettings(output=after, patterns=["prepare"]))

    assert outcome.counts["fix_reshape_targets"] == 2
    for path in (before, after):
        counts = pipeline.match(path, MatchSettings(target=["dnnl"])).counts
        assert counts["dnnl.dense_bias_sum"] == 1
        assert counts["dnnl.batch_matmul"] == 2


def _takes(rule: RewriteRule, text: str) -> bool:
    try:
        return rewrite(model_from_text(text, "before"), [rule]).rounds > 0
    except DplError:
        return True  # it went on without an end
