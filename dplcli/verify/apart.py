"""Each partition judged by itself: on what the original computes there, kernel against body.

The outputs of a whole model are a poor witness of kernels (see :mod:`dplcli.verify.places`): the
last bits of a partition decide over large differences behind a Softmax, a Sigmoid that onnxruntime
rounds to steps, or a quantisation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dplcli.analysis.extract import Wiring, cut, made_name
from dplcli.errors import counted
from dplcli.verify.compare import Facts
from dplcli.verify.layers import capture, type_of, value_of
from dplcli.verify.model import model_of
from dplcli.verify.settings import REFERENCE_LEVEL, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dplcli.verify.compare import Judge
    from dplcli.verify.run import Runner
    from dplcli.verify.settings import Feed, Leaf, ModelSource

_ROUNDINGS = 1 << 10
_MOST_VALUES = 64
"""How many partitions run in one session: what they read and make is held at once."""


@dataclass(frozen=True)
class ApartJudgement:
    """What partitions give by themselves.

    Attributes:
        judged: How many were run by themselves.
        unseen: How many ran in the model and cannot be run by themselves: those in bodies.
        differing: What is wrong with those that do not give what their bodies give.
    """

    judged: int
    unseen: int
    differing: tuple[str, ...]

    @property
    def excuse(self) -> str:
        """What this says for the kernels; "" if it is not enough to say anything."""
        if self.differing or self.unseen or not self.judged:
            return ""
        return (
            "rounding, amplified by the model: "
            f"{counted(self.judged, 'partition')} by themselves give what the bodies give"
        )


def judge_apart(
    candidate: ModelSource,
    ran: Collection[str],
    feeds: Mapping[str, Feed],
    judge: Judge,
    create: Callable[[ModelSource], Runner],
) -> ApartJudgement:
    """Run partitions by themselves, on a library and by their bodies.

    Args:
        candidate: The model, with the kernels that it is to have.
        ran: The names of the calls that ran on the library.
        feeds: What the model is fed.
        judge: Says for which inputs this is.
        create: Creates a session.

    Raises:
        RunError: A model that is cut out does not run.
        StoppedError: The process crashed, or took longer than allowed.
    """
    wiring = Wiring(model_of(candidate))
    calls = [row for row, node in enumerate(wiring.nodes) if node.name in ran]
    bodies = replace(candidate, execution=candidate.execution.plain())
    differing: list[str] = []
    for start in range(0, len(calls), _MOST_VALUES):
        rows = calls[start : start + _MOST_VALUES]
        read = dict.fromkeys(name for row in rows for name in wiring.reads[row])
        asked = [name for name in read if name in wiring.makers]
        outputs = capture(bodies, asked, feeds) if asked else {}
        values = {name: value_of(leaves) for name, leaves in outputs.items()}
        if lost := [name for name, value in values.items() if value is None]:
            raise RunError(f"{lost[0]!r} cannot be fed")
        given = {**{name: feeds[name] for name in read if name in feeds}, **values}
        expected, actual = (
            create(_cut_out(wiring, rows, source, given)).run(given)
            for source in (bodies, candidate)
        )
        differing += _differences(wiring, rows, judge, expected, actual)
    return ApartJudgement(len(calls), len(ran) - len(calls), tuple(differing))


def _differences(
    wiring: Wiring,
    rows: Sequence[int],
    judge: Judge,
    expected: Mapping[str, Sequence[Leaf]],
    actual: Mapping[str, Sequence[Leaf]],
) -> list[str]:
    stepped = frozenset(
        name
        for name, leaves in expected.items()
        if any(leaf.data.dtype.kind in "iu" for leaf in leaves)
    )
    judge = replace(
        judge, facts=Facts(stepped=stepped), roundings=_ROUNDINGS, level=REFERENCE_LEVEL
    )
    objections = []
    for row in rows:
        node = wiring.nodes[row]
        for output in filter(None, node.output):
            name = output if output in expected else made_name(output)
            compared = judge.compare(name, expected[name], actual[name])
            if not compared.ok:
                objections.append(
                    f"partition {node.name!r} ({node.domain}::{node.op_type}) by itself gives "
                    f"something else than its body: {compared.reason}"
                )
    return objections


def _cut_out(
    wiring: Wiring, rows: Sequence[int], source: ModelSource, given: Mapping[str, Feed]
) -> ModelSource:
    """Return calls as a model that is fed what they read."""
    types = {name: type_of(value) for name, value in given.items() if value is not None}
    ends = [name for row in rows for name in wiring.nodes[row].output if name]
    model = cut(wiring, set(rows), types, ends, given)
    held = source.weights or {}
    weights = {t.name: held[t.name] for t in model.graph.initializer if t.name in held}
    content = model.SerializeToString()
    return replace(source, content=content, weights=weights, name="partitions", blocks=None)
