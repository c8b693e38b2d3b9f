"""Measuring the power of a check: how many wrong models would it have refused?"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx

from dplcli.verify.interface import read_model
from dplcli.verify.mutants import changes, regions_of
from dplcli.verify.result import Power
from dplcli.verify.sessions import Array, RunError, Source, StoppedError

# Draws per mutant asked for: many changes make a model that onnxruntime refuses.
_PATIENCE = 10


def measure_power(
    candidate: Source, count: int, seed: int, is_caught: Callable[[Source], bool]
) -> Power:
    """Try *count* wrong candidates, fewer where no more of them run.

    Args:
        candidate: The model in question; it is not changed.
        count: How many mutants to try.
        seed: Decides which.
        is_caught: Runs a mutant and tells whether the check refuses it.
            Raises RunError if onnxruntime does not run it.
    """
    given = dict(candidate.weights or {})
    model = (
        read_model(candidate.path)
        if candidate.content is None
        else onnx.load_model_from_string(candidate.content)
    )
    tried: set[str] = set()
    caught = 0
    missed: list[str] = []
    drawn = changes(model, given, np.random.default_rng(seed))
    for _, change in zip(range(_PATIENCE * count), drawn, strict=False):
        if caught + len(missed) == count:
            break
        mutant, weights = onnx.ModelProto(), dict[str, Array](given)
        mutant.CopyFrom(model)
        what = change(mutant, weights)
        if not what or what in tried:
            continue
        tried.add(what)
        content = mutant.SerializeToString()
        try:
            refused = is_caught(replace(candidate, content=content, weights=weights or None))
        except (RunError, StoppedError):
            continue
        if refused:
            caught += 1
        else:
            missed.append(what)
    return Power(caught, caught + len(missed), tuple(missed), regions_of(model).label)
