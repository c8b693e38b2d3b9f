"""What a command that writes a model says at its end: the check, the file, why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dplcli.report.layout import Text
from dplcli.report.tables import verification_report

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.report.layout import Part
    from dplcli.verify import VerificationResult


class Written(Protocol):
    """What became of a result.

    Attributes:
        output: The file written; None if nothing was.
        kept: Where a failed result was kept for a look.
        objection: What onnx.checker says of it though it accepts the original, or "".
        verification: The numerical check; None if it was not made.
    """

    @property
    def output(self) -> Path | None: ...  # noqa: D102  # see the class
    @property
    def kept(self) -> Path | None: ...  # noqa: D102
    @property
    def objection(self) -> str: ...  # noqa: D102
    @property
    def verification(self) -> VerificationResult | None: ...  # noqa: D102


def ending(written: Written, *, is_changed: bool, is_verified: bool) -> list[Part]:
    """Return the last lines of a report.

    Args:
        written: What became of the result.
        is_changed: Whether it differs from the model at all.
        is_verified: Whether the user wants it to be checked.
    """
    parts: list[Part] = []
    if written.verification is not None:
        parts += [Text(), verification_report(written.verification)]
    elif is_changed and not is_verified:
        parts.append(Text("Not verified, as asked.", style="yellow"))
    if written.output is not None:
        same = "" if is_changed else ", unchanged"
        parts.append(Text(f"Wrote {written.output}{same}."))
    return parts


def check_failure(written: Written) -> list[str]:
    """Say why the check refuses the result, if it does."""
    if written.objection:
        return [f"onnx.checker refuses the result: {written.objection}"]
    if written.verification is not None and not written.verification.equivalent:
        return ["the result is not equivalent to the original"]
    if written.verification is not None and not written.verification.accepted:
        return ["the check notices too little to be trusted (--min-power)"]
    return []


def whereabouts(written: Written) -> str:
    """Say where a result that failed is."""
    return "nothing was written" if written.kept is None else f"kept as {written.kept}"
