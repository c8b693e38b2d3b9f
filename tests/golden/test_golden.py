"""What every command prints and writes is what was recorded."""

from pathlib import Path

import pytest

from tests.corpus.nets import ABSENT
from tests.golden.record import answers, folder_of, golden, recorded_with, sessions, versions
from tests.support.helpers import one_in

SESSIONS = sessions()
IN_ORDER = sorted(SESSIONS, key=lambda name: (name != "residual_block", name != "commands"))


@pytest.mark.parametrize("name", one_in(len(IN_ORDER), IN_ORDER, gate=4))
def test_every_answer_is_the_recorded_one(name: str, tmp_path: Path) -> None:
    """Exit codes, text, JSON, reports and models are the same bytes, command by command."""
    if versions() != recorded_with():
        pytest.skip(f"recorded with {recorded_with()}; here is {versions()}")
    if not SESSIONS[name].model.exists():
        pytest.skip(f"{name} {ABSENT}")
    kept = tmp_path / "kept"
    found, wanted = answers(SESSIONS[name], kept), golden()[name]
    assert found.keys() == wanted.keys()
    changed = {command: _changed(found[command], wanted[command]) for command in found}
    printed = [
        (folder_of(kept, number, command) / "stdout").read_text(encoding="utf-8")
        for number, command in enumerate(found)
        if "stdout" in changed[command]
    ]
    if printed or any(changed.values()):
        told = {command: parts for command, parts in changed.items() if parts}
        pytest.fail("\n".join([f"not as recorded: {told}", *printed]))


def _changed(found: dict[str, str], wanted: dict[str, str]) -> list[str]:
    """Return what of one command's answer is new, gone or different."""
    names = sorted(found.keys() | wanted.keys())
    return [name for name in names if found.get(name) != wanted.get(name)]


def test_every_session_is_recorded() -> None:
    """No session is without its record, and no record without its session."""
    assert golden().keys() == SESSIONS.keys()
