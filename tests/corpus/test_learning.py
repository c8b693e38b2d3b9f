"""``dpl learn`` of real models, and of what other tools made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dplcli.outcomes.written import Delivery
from dplcli.pipeline.learning import learn_rewrites
from tests.corpus.nets import real_model

if TYPE_CHECKING:
    from dplcli.outcomes.rules import RewritesOutcome


def learned(before: str, after: str) -> RewritesOutcome:
    """Learn from two models of the corpus."""
    return learn_rewrites(real_model(before), real_model(after))


@pytest.mark.long
@pytest.mark.exhaustive
def test_a_bert_as_onnxruntime_fuses_it() -> None:
    """Every place is explained; the normalisation of the embeddings, which stays, is left alone."""
    outcome = learned("bert-legacy17", "bert-legacy17-ortfused")
    assert (outcome.explained, outcome.left, outcome.beyond) == (54, (), 0)
    places = {item.rule.name: item.places for item in outcome.learned}
    assert places["skip_layer_normalization"] == 24
    (rule,) = (i.rule for i in outcome.learned if i.rule.name == "skip_layer_normalization")
    assert "a.rank == 1" in [condition.text for condition in rule.where]
    assert isinstance(outcome.delivery, Delivery)
    assert outcome.delivery.is_sound


@pytest.mark.long
def test_a_resnet_with_fused_convolutions() -> None:
    """One rule says it."""
    outcome = learned("resnet50-legacy17", "resnet50-legacy17-ortextended")
    (item,) = outcome.learned
    assert (item.rule.name, item.places, item.trial.verdict) == ("fused_conv", 33, "passed")
    assert isinstance(outcome.delivery, Delivery)
    assert outcome.delivery.is_sound


@pytest.mark.long
def test_scales_that_differ_everywhere() -> None:
    """What nothing in the first model says is told, rather than tried place by place."""
    outcome = learned("distilbert-dynamo18", "distilbert-dynamo18-qdq-static")
    assert not outcome.learned
    assert outcome.delivery is None
    assert any("each of the 36 places has numbers of its own" in what for what, *_ in outcome.left)
    assert any("a rule cannot write a constant of int8" in what for what, *_ in outcome.left)
