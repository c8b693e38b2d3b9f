"""A third opinion where two models differ: whom does onnx's reference evaluator agree with?

Two questions are put to it. Fed what the original was fed, does the original give in the evaluator
what it gave in onnxruntime, or what the candidate gave? And do both models agree with each other
in the evaluator? If they do, the files say the same, and the difference is onnxruntime's.
"""

from dataclasses import dataclass
from typing import Literal

Side = Literal["original", "candidate", "both", "neither"]


@dataclass(frozen=True)
class Opinion:
    """What the reference evaluator says of one output that failed.

    Attributes:
        output: Name of the output.
        level: Optimisation level at which it failed.
        seed: Seed of the inputs.
        agrees_with: Which results it agrees with within the tolerance; None if it has no opinion.
        models_agree: Whether the evaluator gives the same for both models; None if not known.
        problem: Why it has no opinion, or none of the candidate.
    """

    output: str
    level: str
    seed: int
    agrees_with: Side | None = None
    models_agree: bool | None = None
    problem: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the fields in a fixed order."""
        return dict(vars(self))

    def __str__(self) -> str:
        """Return what a reader is told."""
        where = f"{self.output} at level {self.level}, seed {self.seed}"
        if self.agrees_with is None:
            return (
                f"third opinion: onnx's reference evaluator could not say anything of {where}, "
                f"because {self.problem}"
            )
        whom = "with" if self.agrees_with in {"both", "neither"} else "with the"
        text = (
            f"third opinion: onnx's reference evaluator agrees {whom} {self.agrees_with} on {where}"
        )
        match self.models_agree:
            case True:
                return f"{text}; it finds both models equal, so the difference is onnxruntime's"
            case False:
                return f"{text}; it finds that the models differ"
            case None:
                return f"{text}; it could not say anything of the candidate, because {self.problem}"
