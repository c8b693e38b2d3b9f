"""What would let rules do more: a hint is given where it is true, and nowhere else."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import onnx
import onnx.parser
import pytest

from dplcli import pipeline
from dplcli.errors import DplError, OpsetError
from dplcli.onnx_io import load_model
from dplcli.pipeline import hints
from dplcli.report.json import record_of
from dplcli.settings import MatchSettings, PartitionSettings, RewriteSettings
from tests.corpus.nets import listed_models, real_model
from tests.support.helpers import thinned

GELU = """g (float[n,4] x) => (float[n,4] y)
    <float s = {1.4142135623730951}, float one = {1}, float half = {0.5}> {
    d = Div (x, s) e = Erf (d) a = Add (e, one) m = Mul (x, a) y = Mul (m, half) }"""
PLAIN = "g (float[n,4] x) => (float[n,4] y) { t = Tanh (x) y = Exp (t) }"
RULES = """
dpl: 1
target: t
patterns:
  - {name: tanh, pattern: Tanh(x), where: ["x.rank == 2"]}
  - {name: gemm, pattern: "Gemm(x, w, b)"}
"""
REWRITES = """
dpl: 1
rewrites:
  - {name: ranked, pattern: Tanh(x), replacement: Sin(x), where: ["x.rank == 2"]}
"""


def saved(folder: Path, text: str, opset: int = 13) -> Path:
    """Write a model."""
    header = f'<ir_version: 8, opset_import: ["" : {opset}, "own" : 1]>\n'
    path = folder / "m.onnx"
    onnx.save(onnx.parser.parse_model(header + text), path)
    return path


def catalogue(folder: Path, text: str) -> str:
    """Write a catalogue."""
    path = folder / "rules.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def rewritten(path: Path, *patterns: str, **settings: object) -> tuple[str, ...]:
    """Return the hints of a rewrite."""
    chosen = RewriteSettings(dry_run=True, hints=True, **settings)  # type: ignore[arg-type]
    output = path.with_name("o.onnx")
    return pipeline.rewrite(path, chosen.but(output=output, patterns=patterns)).hints


def matched(path: Path, *patterns: str) -> tuple[str, ...]:
    """Return the hints on matches."""
    return pipeline.match(path, MatchSettings(patterns=patterns, hints=True)).hints


# Sizes that nothing proves to be sums of others.

SIZES = """g (float[p] a, float[n] b, float[t] m, float[1] k) => (float[u] o, float[v] q) {
    c = Concat <axis = 0> (a, b) o = Add (c, m) q = Add (c, k) }"""
EQUAL = """
dpl: 1
target: t
patterns: [{name: same, pattern: "Add(x, y)", where: ["dims(x) == dims(y)"]}]
"""


def test_a_refusal_says_which_sizes_would_mend_it(tmp_path: Path) -> None:
    """Where trying them does, and no hint says it again; elsewhere the refusal is what it was."""
    settings = MatchSettings(patterns=(catalogue(tmp_path, EQUAL),), hints=True)
    outcome = pipeline.match(saved(tmp_path, SIZES), settings)

    unproved = "'dims(x) == dims(y)' is not proved to hold"
    mend = "2 nodes instead of 3 are unmatched if t is always p + n: --shape t=p+n"
    reasons = {item.root.outputs[0].name: item.reason for item in outcome.refused}  # type: ignore[union-attr]  # it has one
    assert reasons == {"q": unproved, "o": f"{unproved}; {mend}"}
    assert not any("--shape" in hint for hint in outcome.hints)


# Operators that are to be made first.

FUSED = """
dpl: 1
target: t
patterns:
  - {name: gelu, pattern: Gelu(x)}
  - {name: dot, pattern: "MatMul(x, y)"}
"""


@pytest.mark.parametrize(
    ("text", "opset", "hint"),
    [
        (GELU, 13, "1 rule matches after fusing (t.gelu once): dpl rewrite -p fuse --opset 20"),
        (GELU, 20, "1 rule matches after fusing (t.gelu once): dpl rewrite -p fuse"),
        (GELU.replace("{0.5}", "{0.25}"), 20, ""),
        (PLAIN, 20, ""),
    ],
)
def test_what_matches_after_fusing_is_told(
    tmp_path: Path, text: str, opset: int, hint: str
) -> None:
    """With the command that was tried; nothing, where no rule makes what is waited for."""
    hints = matched(saved(tmp_path, text, opset), catalogue(tmp_path, FUSED))

    assert [each for each in hints if "fusing" in each] == ([f"{hint} comes first"] if hint else [])


@pytest.mark.long
def test_a_fusion_that_is_proposed_passes_the_check(tmp_path: Path) -> None:
    """Attention that PyTorch guards against NaN is fused, as no mask can hide a whole row."""
    path = Path(__file__).parents[2] / "sample_models/deit.onnx"
    assert any("rewrite -p fuse --opset 23" in hint for hint in matched(path, "cutlass"))

    settings = RewriteSettings(output=tmp_path / "f.onnx", patterns=("fuse",), opset=23)
    assert pipeline.rewrite(path, settings).counts["attention"]


# A later opset.


def test_rules_of_a_later_opset_are_named(tmp_path: Path) -> None:
    """With the opset that is needed, how often they match, and the option."""
    path = saved(tmp_path, GELU)

    assert rewritten(path, "fuse") == ("1 more rule applies at opset 20 (gelu once): --opset 20",)
    assert rewritten(path, "fuse", opset=19) == rewritten(path, "fuse")
    assert rewritten(path, "fuse", opset=20) == ()
    assert matched(path, "fuse")[0] == (
        "1 more rule applies at opset 20 (gelu once): dpl rewrite --opset 20"
    )


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        pytest.param(GELU, 20, id="new-enough"),
        pytest.param(PLAIN, 13, id="nothing-fits"),
        pytest.param(GELU.replace("{0.5}", "{0.25}"), 13, id="near-miss"),
    ],
)
def test_a_later_opset_that_is_of_no_use_is_not_proposed(
    tmp_path: Path, text: str, opset: int
) -> None:
    """All rules that wait for a later opset would find nothing there."""
    assert not any("opset" in hint for hint in rewritten(saved(tmp_path, text, opset), "fuse"))


def test_a_model_that_cannot_be_raised_gets_no_such_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the run ends as it would have without."""
    path = saved(tmp_path, GELU)

    def refuse(path: Path, *, opset: int | None = None) -> object:
        if opset is not None:
            raise DplError("it cannot be raised")
        return load_model(path)

    monkeypatch.setattr(hints, "load_model", refuse)
    assert rewritten(path, "fuse") == ()


def test_what_was_left_out_on_purpose_is_not_proposed(tmp_path: Path) -> None:
    """--only and --skip say what is wanted."""
    path = saved(tmp_path, GELU)

    assert rewritten(path, "fuse", skip=["gelu"]) == ()
    assert rewritten(path, "fuse", only=["layer_normalization"]) == ()


# Ranks that nothing tells.


def test_the_value_where_the_doubt_begins_is_named(tmp_path: Path) -> None:
    """Not the one whose rank is asked: that would follow."""
    path = saved(
        tmp_path,
        """g (float[n,4] x) => (float[p,q] y, float[r,s] z) {
        f = own.Foo (x) r = Relu (f) t = Tanh (r) y = Exp (t) u = Tanh (f) z = Exp (u) }""",
    )
    expected = (
        "2 matches are refused because a rank is unknown: state the shape of 'f', made by own.Foo, "
        "in the file, and the others follow"
    )

    assert matched(path, catalogue(tmp_path, RULES)) == (expected,)
    assert rewritten(path, catalogue(tmp_path, REWRITES)) == (expected,)


def test_an_input_without_a_rank_is_named(tmp_path: Path) -> None:
    """Its shape can be stated as well."""
    path = saved(tmp_path, "g (float[n,4] x) => (float[p,q] y) { t = Tanh (x) y = Exp (t) }")
    proto = onnx.load(path)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(proto, path)

    (hint,) = matched(path, catalogue(tmp_path, RULES))
    assert hint.startswith("1 match is refused because a rank is unknown: ")
    assert "state the shape of 'x', an input, in the file" in hint


def test_a_condition_that_does_not_hold_is_no_doubt(tmp_path: Path) -> None:
    """A known rank that is another one, and an unknown size, are no unknown ranks."""
    path = saved(tmp_path, "g (float[n] x) => (float[n] y) { t = Tanh (x) y = Exp (t) }")
    rules = RULES.replace("x.rank == 2", "x.shape[0] == 3")

    assert matched(path, catalogue(tmp_path, RULES)) == ()
    assert matched(path, catalogue(tmp_path, rules)) == ()


# What prepare would make of a model first.


LINEAR = """g (float[n,4] x) => (float[n,4] z)
    <float[4,4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}, float[4] b = {1,2,3,4}> {
    i = Identity (x) m = MatMul (i, w) y = Add (m, b) z = Identity (y) }"""


def test_prepare_is_proposed_where_more_would_match(tmp_path: Path) -> None:
    """In nodes that match, of all nodes, before and after; and how to get there."""
    path = saved(tmp_path, LINEAR)

    assert matched(path, catalogue(tmp_path, RULES)) == (
        "0 of 4 nodes match now, and 1 of 1 after prepare: dpl partition --prepare",
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(PLAIN, id="nothing-to-prepare"),
        pytest.param(
            "g (float[n,4] x) => (float[n,4] y) { i = Identity (x) y = Sin (i) }",
            id="no-match-then",
        ),
        pytest.param(
            "g (float[n,4] x) => (float[n,4] y) { a = Tanh (x) b = Tanh (a) i = Identity (b) "
            "y = Tanh (i) }",
            id="most-match-now",
        ),
    ],
)
def test_prepare_is_not_proposed_in_vain(tmp_path: Path, text: str) -> None:
    """There is nothing to win, or hardly anything."""
    assert not any(
        "prepare" in h for h in matched(saved(tmp_path, text), catalogue(tmp_path, RULES))
    )


def test_prepare_is_not_proposed_beside_itself(tmp_path: Path) -> None:
    """Neither to a rewrite by prepare, nor to a partition with --prepare."""
    path = saved(tmp_path, LINEAR)
    settings = PartitionSettings(prepare=True, hints=True)
    outcome = pipeline.partition(
        path, settings.but(output=tmp_path / "o.onnx", patterns=[catalogue(tmp_path, RULES)])
    )

    assert outcome.hints == ()
    assert rewritten(path, "prepare") == ()
    assert matched(path, "prepare") == ()


def test_a_rewrite_that_does_nothing_is_told_what_comes_first(tmp_path: Path) -> None:
    """The same run with prepare before it would do something."""
    text = REWRITES.replace(
        'Tanh(x), replacement: Sin(x), where: ["x.rank == 2"]',
        '"Gemm(x, w, b, **_)", replacement: "Tanh(x)"',
    )
    path = saved(tmp_path, LINEAR)

    assert rewritten(path, catalogue(tmp_path, text)) == (
        "the rules apply once with prepare: add -p prepare",
    )


# Where and when hints are given.


def test_nobody_pays_who_did_not_ask(tmp_path: Path) -> None:
    """Who wants no hints has none."""
    path = saved(tmp_path, GELU)

    assert pipeline.match(path, MatchSettings(patterns=["fuse"], hints=False)).hints == ()


def test_large_models_get_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To try what a hint says takes as long as the run."""
    monkeypatch.setattr(hints, "_MOST_NODES", 4)
    path = saved(tmp_path, GELU)

    assert rewritten(path, "fuse") == matched(path, "fuse") == ()


def test_an_outcome_with_hints_is_a_record(tmp_path: Path) -> None:
    """Hints are plain text."""
    path = saved(tmp_path, LINEAR)
    outcome = pipeline.match(path, MatchSettings(patterns=[catalogue(tmp_path, RULES)], hints=True))

    assert json.loads(json.dumps(outcome.hints)) == list(outcome.hints)


# Element types that rules do not take.


TYPED = """
dpl: 1
target: t
patterns:
  - {name: one, pattern: 'Exp(t.has_dtype("float16"))'}
  - {name: two, pattern: 'Exp(Tanh(x.has_dtype("float16")))'}
"""


def test_an_element_type_is_named_where_it_is_why_nothing_matches(tmp_path: Path) -> None:
    """Not where anything matches, nor where something else is why."""
    rules = catalogue(tmp_path, TYPED)
    assert matched(saved(tmp_path, PLAIN), rules) == (
        "the 2 rules that come nearest take element type float16, and the model has float32",
    )
    assert matched(saved(tmp_path, PLAIN.replace("float[", "float16[")), rules) == ()
    catalogue(tmp_path, TYPED.replace("Exp(t", "Sin(t").replace("Exp(T", "Sin(T"))
    assert matched(saved(tmp_path, PLAIN), rules) == ()


# Following what a hint says.


AFTER = re.compile(r"(\d+) of (\d+) nodes match now, and (\d+)(?: of (\d+) after prepare)?")
TIMES = re.compile(r"(\w+) (once|\d+ times)")


def follow_matches(path: Path, hint: str) -> None:
    """Do what a hint on matches says, and hold the result against it."""
    chosen = PartitionSettings(target="dnnl", verify=False, output=path.with_name("followed.onnx"))
    if "--escape" in hint:
        chosen = chosen.but(escape=tuple(hint.replace("--escape", "").split()[-1:]))
    elif "--prepare" in hint:
        chosen = chosen.but(prepare=True)
    elif " -p " in hint:
        chosen = chosen.but(target=(), patterns=tuple(re.findall(r"-p (\S+)", hint)))
    else:
        return
    coverage = record_of(pipeline.partition(path, chosen))["coverage"]
    promised = AFTER.match(re.sub(r"(?<=\d),(?=\d)", "", hint))
    assert promised is not None, hint
    then, total = int(promised[3]), int(promised[4] or promised[2])
    assert (coverage["nodes"], coverage["of"]) == (then, total)


def follow_rewrite(path: Path, hint: str, *patterns: str) -> None:
    """Do what a hint on a rewrite says, and hold the result against it."""
    if "--opset" not in hint:
        return
    settings = RewriteSettings(dry_run=True, patterns=patterns, opset=int(hint.rpartition(" ")[2]))
    counts = pipeline.rewrite(path, settings.but(output=path.with_name("o.onnx"))).counts
    found = {name.rpartition(".")[2]: count for name, count in counts.items()}
    for name, times in TIMES.findall(hint):
        assert found[name] == (1 if times == "once" else int(times.split()[0])), hint


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(12, listed_models(), first=2))
def test_what_a_hint_promises_comes_true(tmp_path: Path, name: str) -> None:
    """Of any model, whoever follows it has just that."""
    path = tmp_path / real_model(name).name
    path.symlink_to(real_model(name))
    for hint in pipeline.match(path, MatchSettings(target="dnnl", hints=True)).hints:
        follow_matches(path, hint)
    for patterns in (("fuse",), ("prepare", "fuse")):
        for hint in rewritten(path, *patterns):
            follow_rewrite(path, hint, *patterns)
    with suppress(OpsetError):
        assert not any("opset" in hint for hint in rewritten(path, "fuse", opset=24))


ESCAPING = """g (float[n,4] x) => (float[n,4] y, float[n,4] z) {
    t = Tanh (x) y = Exp (t) z = Sin (t) }"""
PAIRED = "dpl: 1\ntarget: t\npatterns:\n  - {name: pair, pattern: Exp(Tanh(x))}\n"


def test_a_policy_is_proposed_where_more_would_match(tmp_path: Path) -> None:
    """Where a value inside is read outside, and for the rule alone that is refused for it."""
    rules = catalogue(tmp_path, PAIRED)
    assert matched(saved(tmp_path, ESCAPING), rules) == (
        "0 of 3 nodes match now, and 2 with --escape t.pair=outputs",
    )
    catalogue(tmp_path, PAIRED.replace("}", ", escape: outputs}"))
    assert matched(saved(tmp_path, ESCAPING), rules) == ()


POOLED = """g (float[1,4,8,8] x, float[4,4,1,1] w) => (float[1,4,4,4] y) {
    c = Conv (x, w) p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c) y = Relu (p) }"""


def test_further_rules_of_a_target_are_proposed(tmp_path: Path) -> None:
    """Those of a catalogue beside it, where more would match, and only to who has the target's."""
    path = saved(tmp_path, POOLED)
    hint = "1 of 3 nodes match now, and 3 with -p dnnl_ops"

    assert matched(path, "dnnl") == (hint,)
    follow_matches(path, hint)
    assert matched(path, "dnnl_ops") == ()
    assert matched(path, catalogue(tmp_path, RULES.replace("target: t", "target: dnnl"))) == ()
    assert matched(saved(tmp_path, PLAIN.replace("Exp", "Tan")), "cublas") == ()
