"""What a rewrite did, turn by turn: as a tree to read, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dplcli.passes.applications import Application, list_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dplcli.passes.applications import NodeIdentity
    from dplcli.passes.trace import Refusal, Trace, TracedTurn

    Json = dict[str, Any]


def trace_lines(trace: Trace) -> Iterator[str]:
    """Yield a tree: rounds, the rules that had a turn in them, what each did and did not do."""
    number = 0
    for turn in trace.turns:
        if turn.round != number:
            number = turn.round
            yield f"round {number}"
        yield f"  {turn.rule}: {_counted(turn.candidates, 'candidate')}{_outcome(turn)}"
        for event in turn.events:
            yield f"    {_told(event)}"
    if not trace.turns:
        yield "no rule has anything to look at"


def _outcome(turn: TracedTurn) -> str:
    return f", applied {_times(turn.applied)}" if turn.applied else ""


def _told(event: Application | Refusal) -> str:
    if isinstance(event, Application):
        return f"{event.number}. {sentence(event)}"
    return (
        f"refused at {list_nodes([event.root])}{_place(event.scope)} by {event.stage}: "
        f"{event.reason}"
    )


def sentence(application: Application) -> str:
    """Say what an application did: ``replaced Conv 'c', Relu 'r' by FusedConv 'c'``."""
    removed, added = list_nodes(application.removed), list_nodes(application.added)
    if not removed:
        done = f"added {added}" if added else f"changed {list_nodes([application.root])}"
    else:
        done = f"replaced {removed} by {added}" if added else f"removed {removed}"
    return f"{done}{_place(application.scope)}"


def _place(scope: str) -> str:
    return "" if scope == "main" else f" in {scope}"


def _counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def trace_record(trace: Trace, label: str) -> Json:
    """Return the record ``dpl.trace/1``."""
    return {
        "schema": "dpl.trace/1",
        "model": label,
        "turns": [
            {
                "round": turn.round,
                "rule": turn.rule,
                "candidates": turn.candidates,
                "applied": turn.applied,
                "events": [_event(event) for event in turn.events],
            }
            for turn in trace.turns
        ],
    }


def _event(event: Application | Refusal) -> Json:
    if isinstance(event, Application):
        return {"event": "applied", **application_record(event)}
    return {
        "event": "refused",
        "scope": event.scope,
        "root": identity_record(event.root),
        "stage": event.stage,
        "reason": event.reason,
    }


def application_record(item: Application) -> Json:
    """Return what identifies one application, and what it did."""
    return {
        "id": item.number,
        "rule": item.rule,
        "scope": item.scope,
        "root": identity_record(item.root),
        "removed": [identity_record(node) for node in item.removed],
        "added": [identity_record(node) for node in item.added],
    }


def identity_record(node: NodeIdentity) -> Json:
    """Identify a node that may be gone."""
    return node._asdict()
