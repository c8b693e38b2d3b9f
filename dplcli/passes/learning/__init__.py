"""Learn a rule from a subgraph that somebody points at."""

from dplcli.passes.learning.rule import LearnedRule, learn_rule

__all__ = ["LearnedRule", "learn_rule"]
