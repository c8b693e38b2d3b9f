"""Asking onnx's reference evaluator about outputs that fail (`dplcli.verify.opinion`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dplcli.errors import DplError
from dplcli.verify.opinion import Opinion, Side
from dplcli.verify.ort_messages import one_line
from dplcli.verify.result import OutputComparison
from dplcli.verify.sessions import Feed, Leaf, Outputs, RunError, Runner, Source

Agree = Callable[[str, Sequence[Leaf], Sequence[Leaf], int], bool]


class Evaluator:
    """Both models in the reference evaluator, run once per seed that is asked for."""

    def __init__(
        self,
        original: Source,
        candidate: Source,
        feeds: Mapping[int, Mapping[str, Feed]],
        agree: Agree,
    ) -> None:
        """Remember what to run.

        Args:
            original: The model that is right by definition.
            candidate: The other one.
            feeds: The inputs per seed.
            agree: Tells whether two results of an output are the same within the tolerance of a
                seed.
        """
        self._sources = {
            name: replace(source, name=name, libraries=(), execution=source.execution.plain())
            for name, source in (("original", original), ("candidate", candidate))
        }
        self._feeds = feeds
        self._agree = agree
        self._results: dict[tuple[str, int], Outputs | Exception] = {}

    def opinions(
        self,
        failed: Sequence[OutputComparison],
        original: Mapping[int, Outputs],
        candidate: Mapping[int, Outputs],
    ) -> list[Opinion]:
        """Return an opinion on each comparison that failed.

        Args:
            failed: The comparisons, of one level.
            original: What the original gave in onnxruntime, per seed.
            candidate: What the candidate gave in onnxruntime at that level, per seed.
        """
        return [
            self._opinion(item, original[item.seed][item.name], candidate[item.seed][item.name])
            for item in failed
        ]

    def _opinion(
        self, item: OutputComparison, ours: Sequence[Leaf], theirs: Sequence[Leaf]
    ) -> Opinion:
        blank = Opinion(item.name, item.level, item.seed)
        try:
            right = self._result("original", item.seed)[item.name]
            side = _side(
                original=self._agree(item.name, right, ours, item.seed),
                candidate=self._agree(item.name, right, theirs, item.seed),
            )
        except Exception as error:  # noqa: BLE001  # it may give, and raise, anything
            return replace(blank, problem=_why(error))
        try:
            actual = self._result("candidate", item.seed)[item.name]
            equal = self._agree(item.name, right, actual, item.seed)
        except Exception as error:  # noqa: BLE001  # it may give, and raise, anything
            return replace(blank, agrees_with=side, problem=_why(error))
        return replace(blank, agrees_with=side, models_agree=equal)

    def _result(self, which: str, seed: int) -> Outputs:
        """Return what a model gives in the evaluator; raise what it raised, each time."""
        if (which, seed) not in self._results:
            try:
                runner = Runner(self._sources[which], "disable", "reference")
                self._results[which, seed] = runner.run(self._feeds[seed])
            except Exception as error:  # noqa: BLE001  # it may raise anything
                self._results[which, seed] = error
        found = self._results[which, seed]
        if isinstance(found, Exception):
            raise found
        return found


def _why(error: Exception) -> str:
    """Return in one line why there is no opinion."""
    if isinstance(error, (RunError, DplError)):
        return str(error)
    return one_line(f"{type(error).__name__}: {error}")


def _side(*, original: bool, candidate: bool) -> Side:
    if original and candidate:
        return "both"
    if original or candidate:
        return "original" if original else "candidate"
    return "neither"
