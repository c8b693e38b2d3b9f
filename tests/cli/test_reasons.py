"""Reasons are printed letter for letter, brackets and all."""

from pathlib import Path

import pytest

from tests.cli.support import Dpl, Save

CONDITION = "all([is_number(extent) for extent in x.shape])"
RULES = f"dpl: 1\ntarget: t\npatterns: [{{name: r, pattern: Relu(x), where: ['{CONDITION}']}}]\n"
MODEL = "g (float[N, 2] x) => (float[N, 2] y) { y = Relu (x) }"


@pytest.mark.parametrize("options", [(), ("--verbose",)])
def test_a_condition_with_a_list_is_quoted_whole(
    dpl: Dpl, folder: Path, save: Save, options: tuple[str, ...]
) -> None:
    """What stands in brackets is no markup, in the table and in the list; who asks is told."""
    save(MODEL)
    (folder / "rules.yaml").write_text(RULES, encoding="utf-8")

    answer = dpl("match", "m.onnx", "-p", "rules.yaml", *options)

    assert answer.code == 0
    assert answer.out.count(f"{CONDITION!r} does not hold") == 2 * len(options)
