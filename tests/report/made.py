"""Results that no run gives so easily: many outputs, hostile names, figures without meaning."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.outcomes.comparing import VerifyOutcome
from dplcli.report.document import (
    Case,
    Document,
    Finding,
    SourceLocation,
)
from dplcli.report.layout import Group, Heading, Text, TextTable
from dplcli.report.tables import RuleUse
from dplcli.report.verify import verification_document
from dplcli.verify import Figures, InputChoice, OutputComparison, VerificationResult
from dplcli.verify.layers import Layer, Layers

if TYPE_CHECKING:
    from collections.abc import Sequence

HOSTILE = (
    "<script>alert(1)</script>",
    "</title></style><img src=x onerror=alert(1)>",
    "a\nb\tc\rd",
    "x" * 5_000,
    "\x00\x1b[31mred",
    "\u202egnp.exe",
    "| a | `b` **c** ]]> [l](http://e.x) @you www.e.x",
    "$x_1$ $",
    "日本語の出力🙂",
    "",
    "{{ 7*7 }}{% raw %}",
    "\ud800",
    "&amp;",
    ' id="q" #010101 font: 12px x',
    "-->",
)


def output(
    name: str,
    level: str = "disable",
    share: float | None = 0.01,
    bins: tuple[int, ...] = (100, 20, 5),
) -> OutputComparison:
    """Return a comparison whose largest error is *share* of its tolerance."""
    ok = share is not None and share <= 1
    needed = [None if share is None else share * tolerance for tolerance in (1e-4, 1e-5)]
    figures = Figures(needed_rtol=needed[0], needed_atol=needed[1], ulp_histogram=bins)
    return OutputComparison(
        name=name,
        dtype="float32",
        shape=(1, 10),
        level=level,
        baseline="disable",
        seed=1,
        max_abs=None if share is None else 1e-6,
        max_rel=2e-5,
        rmse=1e-7,
        cosine=1.0,
        max_ulp=7,
        mismatches=0 if ok else 12,
        nan_mismatches=0,
        worst_index=(0, 3),
        rtol=1e-4,
        atol=1e-5,
        ok=ok,
        reason=None if ok else f"12 of 1000 elements of {name} are outside the tolerance",
        figures=figures,
    )


def result(outputs: Sequence[OutputComparison], **others: object) -> VerificationResult:
    """Return the result of a comparison of these outputs."""
    made = VerificationResult(
        equivalent=all(item.ok for item in outputs),
        seeds=(0, 1),
        levels=("disable", "all"),
        inputs=(InputChoice("ids", "int64", (1, 128), 0, 30521, "index into 30522 rows"),),
        outputs=tuple(outputs),
    )
    return replace(made, **others)  # type: ignore[arg-type]  # names of fields


def compared(subject: str, found: VerificationResult) -> Document:
    """Return the report on a comparison."""
    return verification_document(subject, VerifyOutcome(labels=("", ""), verification=found))


def hostile_document() -> Document:
    """Return a report all of whose texts are hostile."""
    outputs = [
        output(name, level, share)
        for name in HOSTILE
        for level, share in (("disable", 0.2), ("all", math.inf))
    ]
    inputs = tuple(InputChoice(name, "float32", (1,), None, None, name) for name in HOSTILE)
    document = compared(HOSTILE[0] + HOSTILE[2], result(outputs, inputs=inputs))
    return replace(
        document,
        failures=HOSTILE,
        notes=HOSTILE,
        facts=tuple((name, name) for name in HOSTILE),
        rules=tuple(RuleUse(name, 1, 2) for name in HOSTILE),
        cases=tuple(Case(name, name, "failed", name) for name in HOSTILE),
        findings=tuple(
            Finding("catalogue", "error", name, name, SourceLocation(name or "a", 3))
            for name in HOSTILE
        ),
        said=Group(document.text(verbose=True), *map(Text, HOSTILE), *hostile_blocks()),
    )


def hostile_blocks() -> list[Text | TextTable]:
    """Return a heading, code and a table all of whose texts are hostile."""
    rows = [(name, Text(name, "red")) for name in HOSTILE]
    table = TextTable(HOSTILE[0], "value", rows=rows, title=HOSTILE[1])
    folded = TextTable("value", rows=[(name,) for name in HOSTILE] * 30, title=HOSTILE[0])
    code = (Text(f"  {name}", whole=True) for name in HOSTILE)
    return [*map(Heading, HOSTILE), *code, table, folded]


def inside(shares: Sequence[float]) -> Layers:
    """Return values on the way with these errors as shares of their tolerance."""
    layers = [
        Layer(f"v{i}", f"v{i}", "Relu", "structure", output(f"v{i}", share=share))
        for i, share in enumerate(shares)
    ]
    return Layers(tuple(layers), (0, 0), 0)


def documents() -> dict[str, Document]:
    """Return reports of every kind that is special, by name."""
    two = [
        output("logits", share=0.012, bins=(800, 120, 5)),
        output("logits", "all", share=4.2, bins=(100, 200, 300, 0, 1)),
        output("hidden", share=0.0),
        output("hidden", "all", share=0.3),
    ]
    many = [output(f"output_{i}", at, 10 ** (i / 40 - 4)) for i in range(200) for at in LEVELS]
    nothing = result([], equivalent=False, inputs=(), reasons=("the candidate lacks 'b'",))
    senseless = [output("a", share=None, bins=()), output("b", share=math.nan)]
    return {
        "two": compared("c.onnx against o.onnx", result(two)),
        "many": compared("c.onnx against o.onnx", result(many)),
        "nothing": compared("c.onnx against o.onnx", nothing),
        "senseless": compared("c.onnx against o.onnx", result(senseless)),
        "hostile": hostile_document(),
    }


LEVELS = ("disable", "all")
