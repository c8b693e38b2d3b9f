"""Wrong rules planted among right ones are found on real models, and what is found reproduces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest

from dplcli import pipeline
from dplcli.settings import RewriteSettings, RuleSettings
from tests.corpus.nets import real_model
from tests.corpus.planted import PLANTED, Planted, catalogue, pairs
from tests.support.helpers import thinned

if TYPE_CHECKING:
    from dplcli.outcomes.comparing import BisectOutcome

MOST_NODES = 3
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long


def bisected(folder: Path, *rules: Planted) -> BisectOutcome:
    """Bisect the model of *rules* under them and all that ``prepare`` does."""
    path = folder / "wrong.yaml"
    path.write_text(catalogue(*rules), encoding="utf-8")
    source = RuleSettings(patterns=[str(path), "prepare"])
    model = real_model(rules[0].model)
    return pipeline.bisect_rules(model, source, output=folder / "out")


def culprits(outcome: BisectOutcome) -> list[str]:
    """Name the rules that are to blame, in order of their names."""
    return sorted(step.rule for cause in outcome.causes for step in cause.culprits)


def check_reproduces(folder: Path, rule: str) -> None:
    """Run the command that the folder's README gives, elsewhere and as a user would."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    (command,) = (line.split() for line in text.splitlines() if line.startswith("    dpl "))
    argv = [sys.executable, "-m", "dplcli", *command[1:]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(  # noqa: S603  # our own program
        argv, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert "NOT equivalent: the fault is still there." in done.stdout
    assert rule in text


@pytest.mark.parametrize("rule", thinned(6, PLANTED[::6], name=lambda rule: rule.name))
def test_finds_a_wrong_rule(tmp_path: Path, rule: Planted) -> None:
    """It alone is blamed, by one application, and the folder shows it with fewer nodes."""
    outcome = bisected(tmp_path, rule)

    assert culprits(outcome) == [rule.name]
    assert outcome.is_complete
    (cause,) = outcome.causes
    assert cause.reproducer is not None
    check_reproduces(cause.reproducer, rule.name)
    small = onnx.load(cause.reproducer / "original.onnx")
    whole = onnx.load(real_model(rule.model), load_external_data=False)
    assert len(small.graph.node) < len(whole.graph.node) / 10


@pytest.mark.parametrize("rules", [pairs()[0]], ids=lambda rules: "-".join(r.name for r in rules))
def test_finds_two_wrong_rules(tmp_path: Path, rules: tuple[Planted, Planted]) -> None:
    """Neither hides the other, and each has its own folder."""
    outcome = bisected(tmp_path, *rules)

    assert culprits(outcome) == sorted(rule.name for rule in rules)
    assert outcome.is_complete
    for cause in outcome.causes:
        assert cause.reproducer is not None
        assert pipeline.reproduce(cause.reproducer).differs


@pytest.mark.parametrize("rule", thinned(4, PLANTED[1::6], name=lambda rule: rule.name))
def test_finds_where_a_rewritten_model_leaves_its_original(tmp_path: Path, rule: Planted) -> None:
    """Of two files, nothing else known: the first place is one where the rule was applied."""
    model, path = real_model(rule.model), tmp_path / "wrong.yaml"
    path.write_text(catalogue(rule), encoding="utf-8")
    settings = RewriteSettings(verify=False, max_growth=100)
    wrong = tmp_path / "wrong.onnx"
    done = pipeline.rewrite(model, settings.but(output=wrong, patterns=[str(path)]))

    outcome = pipeline.bisect_models(model, wrong, output=tmp_path / "out")

    assert outcome.place is not None, outcome.remark
    made = {node.output for item in done.applications for node in item.removed}
    ours, _ = outcome.place.nodes
    assert any(text.split("'")[1] in made for text in ours)
    assert len(ours) <= MOST_NODES
    assert pipeline.reproduce(tmp_path / "out").differs
