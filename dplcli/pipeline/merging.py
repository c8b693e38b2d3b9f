"""Which matches a run leaves out, because what they would become is not worth a call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.dpl.match import Rejection
from dplcli.errors import UsageError
from dplcli.passes.weight import light_regions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.passes.merge import Region
    from dplcli.passes.partition import Partition
    from dplcli.passes.selection import Selection


def check_merge(*, merge: bool, prune: bool) -> None:
    """Refuse what cannot be meant.

    Raises:
        UsageError: Regions are to be pruned and none are to be made.
    """
    if prune and not merge:
        raise UsageError("--prune is about the regions that --merge makes", hint="pass both")


def light_matches(
    selection: Selection,
    partitions: Sequence[Partition],
    regions: Sequence[Region],
    before: Mapping[int, str],
) -> dict[int, str]:
    """Say which matches only make regions without a heavy operator.

    Args:
        selection: What was found, without *before*.
        partitions: What it was made into.
        regions: What that was merged into.
        before: What was left out already.

    Returns:
        Why, by the place of the match among all that were found.
    """
    reasons = {}
    for region in light_regions(regions):
        count = len(region.partitions)
        several = f"none of the {count} partitions of its region has a heavy operator"
        reason = several if count > 1 else "it has no heavy operator and no neighbour"
        reasons.update(dict.fromkeys((region.call, *region.members), reason))
    found = {id(item.match): reasons[item.call] for item in partitions if item.call in reasons}
    total = len(selection.matches) + len(before)
    places = (place for place in range(total) if place not in before)
    return {
        place: found[id(match)]
        for place, match in zip(places, selection.matches, strict=True)
        if id(match) in found
    }


def without_matches(selection: Selection, light: Mapping[int, str]) -> Selection:
    """Refuse the matches of *selection* at the places that *light* gives reasons for."""
    if not light:
        return selection
    matches = enumerate(selection.matches)
    refused = [
        Rejection(match.rule, match.root, "prune", light[place], match.root)
        for place, match in enumerate(selection.matches)
        if place in light
    ]
    return replace(
        selection,
        matches=[match for place, match in matches if place not in light],
        refused=[*selection.refused, *refused],
    )
