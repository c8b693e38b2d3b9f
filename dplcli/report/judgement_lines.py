"""What a verdict rests on, in words: where tolerances come from, and what the check notices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.report.layout import Text

if TYPE_CHECKING:
    from dplcli.verify import Power, VerificationResult

_SHOWN = 5


def judgement_lines(result: VerificationResult) -> list[Text]:
    """Return one line per derivation of a tolerance, and what is known of the check's power."""
    users: dict[str, list[str]] = {}
    for output in result.outputs:
        names = users.setdefault(output.derivation, [])
        if output.name not in names:
            names.append(output.name)
    lines = [
        Text(f"tolerance of {_some(names)}: {derivation}", style="dim")
        for derivation, names in users.items()
        if derivation
    ]
    if result.power is not None:
        lines += _power_lines(result.power, weak=result.is_weak)
    if result.is_weak:
        found = "nothing" if result.power is None else f"{result.power.score:.0%}"
        wanted = f"{result.min_power:.0%}"
        lines.append(Text(f"the check caught {found} of what it was to catch {wanted} of", "red"))
    return lines


def _power_lines(power: Power, *, weak: bool) -> list[Text]:
    where = f"changed in the {power.regions}" if power.regions else "tried"
    if not power.of:
        return [Text(f"power: no mutant {where} ran", style="yellow")]
    score = f"power: caught {power.caught} of {power.of} mutants, {where}"
    lines = [Text(score, style="red" if weak else "")]
    lines += [Text(f"  missed: {what}", style="yellow") for what in power.missed[:_SHOWN]]
    if len(power.missed) > _SHOWN:
        lines.append(Text(f"  and {len(power.missed) - _SHOWN} more", style="yellow"))
    return lines


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    left = len(names) - _SHOWN
    return f"{shown} and {left} more" if left > 0 else shown
