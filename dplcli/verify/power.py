"""What the check cannot see: outputs that say nothing about the computation behind them."""

from collections.abc import Sequence

import numpy as np

from dplcli.ir.randomness import RANDOM_OPS
from dplcli.verify.compare import Judge
from dplcli.verify.dataflow import Dataflow, attribute
from dplcli.verify.sessions import Outputs


def blind_outputs(judge: Judge, runs: Sequence[Outputs]) -> tuple[str, ...]:
    """Return the outputs that *judge* would take for equal whatever the input was.

    Args:
        judge: The tolerances in force.
        runs: The original's outputs for different inputs, two at least.
    """
    first, *others = runs
    return tuple(
        name
        for name, leaves in first.items()
        if all(judge.compare(name, leaves, other[name]).ok for other in others)
    )


def blind_warnings(blind: Sequence[str], *, refillable: bool) -> list[str]:
    """Say that the check has no power over *blind* outputs, and what may help."""
    advice = " (weights that ConstantOfShape makes: try --refill-weights)" if refillable else ""
    return [
        f"output {name!r} does not change with the input; the check has no power over it{advice}"
        for name in blind
    ]


def value_warnings(runs: Sequence[Outputs], blind: Sequence[str]) -> list[str]:
    """Name outputs, other than the *blind*, that are all NaN or one number throughout."""
    found = []
    for name in runs[0]:
        leaves = [leaf.data for outputs in runs for leaf in outputs[name]]
        numbers = [data for data in leaves if data.size and data.dtype.kind in "fiu"]
        if not numbers or name in blind:
            continue
        if all(np.isnan(data).all() for data in numbers):
            found.append(f"output {name!r} is NaN everywhere")
        elif all(data.size > 1 and (data == data.flat[0]).all() for data in numbers):
            found.append(f"output {name!r} has the same number in every element")
    return found


def random_warnings(flow: Dataflow) -> list[str]:
    """Name an operator that draws numbers without a seed: no comparison is fair to that."""
    for node in flow.main.body.nodes():
        if node.op_type in RANDOM_OPS and attribute(node, "seed") is None:
            return [f"the model draws random numbers ({node.op_type} {node.output[0]!r})"]
    return []
