"""Random rules over random models: what must hold whatever they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx.printer
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

from dplcli.passes.rewrite import Restriction
from tests.passes.rewriting import check_settled, facts_of, rewritten
from tests.support.helpers import check_sound
from tests.support.random_models import (
    cascading_cases,
    flat_cases,
    rich_cases,
    scoped_cases,
    sound_cases,
)

if TYPE_CHECKING:
    from dplcli.language import RewriteRule

    Case = tuple[onnx.ModelProto, list[RewriteRule]]


def describe(case: Case) -> None:
    """Write down a case that fails."""
    model, rules = case
    for rule in rules:
        where = [condition.text for condition in rule.where]
        note(f"{rule.name}: {rule.pattern!r}  ->  {rule.becomes}  if {where}")
    note(onnx.printer.to_text(model))


def check_case(case: Case) -> None:
    """Rewrite, check everything but the numbers (the operators are made up), and rewrite again."""
    model, rules = case
    assume(rules)
    describe(case)
    result = rewritten(model, rules)
    onnx.checker.check_model(result.after)
    check_settled(result, rules)


@pytest.mark.long
@given(flat_cases())
def test_flat_graphs(case: Case) -> None:
    """A graph and rules that follow it: the work-list misses nothing."""
    check_case(case)


@pytest.mark.long
@given(scoped_cases())
def test_branches_and_functions(case: Case) -> None:
    """Captured values, bodies inside bodies, functions."""
    check_case(case)


@pytest.mark.long
@given(rich_cases())
def test_the_whole_language(case: Case) -> None:
    """Negations, edges, options, shapes, several outputs, chains and regions."""
    check_case(case)


@pytest.mark.long
@given(cascading_cases())
def test_rules_that_make_work_for_each_other(case: Case) -> None:
    """Over many rounds: nothing that becomes possible is missed."""
    check_case(case)


@pytest.mark.long
@given(sound_cases())
def test_rules_that_keep_the_numbers(case: Case) -> None:
    """What onnxruntime computes stays the same, optimised or not."""
    model, rules = case
    describe(case)
    result = rewritten(model, rules)
    check_sound(model, result.after)
    check_settled(result, rules)


@pytest.mark.long
@given(sound_cases(), st.data())
def test_a_limit_cuts_the_log_short(case: Case, data: st.DataObject) -> None:
    """With a limit of k the first k applications are those of a run without, and it is valid."""
    model, rules = case
    describe(case)
    whole = rewritten(model, rules)
    total = len(whole.done.applications)
    limit = data.draw(st.integers(0, total + 1))
    part = rewritten(model, rules, limit=limit)
    first = whole.done.applications[:limit]
    assert list(map(facts_of, part.done.applications)) == list(map(facts_of, first))
    check_sound(model, part.after)
    if limit >= total:
        assert part.after == whole.after


@pytest.mark.long
@given(sound_cases(), st.data())
def test_narrowed_to_some_rules(case: Case, data: st.DataObject) -> None:
    """*only* and *skip* do what a shorter list of rules does."""
    model, rules = case
    describe(case)
    chosen = data.draw(st.sets(st.sampled_from([rule.name for rule in rules]), min_size=1))
    names = [Restriction(name) for name in sorted(chosen)]
    kept = [rule for rule in rules if rule.name in chosen]
    others = [rule for rule in rules if rule.name not in chosen]
    assert rewritten(model, rules, only=names).after == rewritten(model, kept).after
    assert rewritten(model, rules, skip=names).after == rewritten(model, others).after


@pytest.mark.long
@given(sound_cases(), st.data())
def test_narrowed_to_a_node(case: Case, data: st.DataObject) -> None:
    """A restriction to a node touches no other root; to skip it leaves it as a root alone."""
    model, rules = case
    describe(case)
    everywhere = rewritten(model, rules)
    assume(everywhere.done.applications)
    item = data.draw(st.sampled_from(everywhere.done.applications))
    here = Restriction(item.rule, data.draw(st.sampled_from([item.root.output, item.root.name])))
    without = rewritten(model, rules, skip=[here])
    for done in without.done.applications:
        assert done.rule != here.rule or here.node not in (done.root.name, done.root.output)
    alone = rewritten(model, rules, only=[here])
    for done in alone.done.applications:
        assert done.rule == here.rule
        assert here.node in (done.root.name, done.root.output)
    check_sound(model, alone.after)


@pytest.mark.long
@given(sound_cases())
def test_one_application_after_the_other(case: Case) -> None:
    """Bit by bit, each part in a run of its own over the written file: an end as good as any."""
    model, rules = case
    describe(case)
    current = model
    for _ in range(200):
        step = rewritten(current, rules, limit=1)
        if not step.done.applications:
            break
        current = step.after
    else:
        raise AssertionError("this has no end")
    check_sound(model, current)
    check_settled(rewritten(current, rules), rules)


SCRIPT = """
import hashlib, random
from tests.passes.rewriting import rewritten
from tests.support.random_models import cascading_rules, long_graph

digest = hashlib.sha256()
for seed in range(20):
    source = random.Random(seed)
    model = long_graph(source)
    result = rewritten(model, cascading_rules(source, model))
    digest.update(result.after.SerializeToString(deterministic=True))
print(digest.hexdigest())
"""


@pytest.mark.long
def test_the_same_bytes_in_every_process() -> None:
    """Nothing depends on the order of sets, which differs from process to process."""
    found = set()
    for seed in ("1", "2"):
        done = subprocess.run(  # noqa: S603  # this very interpreter
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parent.parent.parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=200,
        )
        found.add(done.stdout)
    assert len(found) == 1
