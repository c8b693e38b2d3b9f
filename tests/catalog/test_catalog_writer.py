"""Rules written as YAML read back as they are."""

from textwrap import dedent

import pytest

from dplcli.catalog.catalog import write_catalog
from dplcli.errors import CatalogError
from dplcli.language import Example
from tests.support.helpers import catalog_rules, rule


def test_writes_what_a_person_would() -> None:
    """Patterns stand line by line, and what would say nothing is left out."""
    first = rule("c = Conv(x, w)\nRelu(c)", "x.rank == 4", "w.is_const", name="conv_relu")
    second = rule("Relu(x)", name="relu", doc="ReLU: alone.")
    assert write_catalog([first, second], doc="Two rules.") == dedent(
        """\
        dpl: 1
        target: t
        doc: Two rules.
        patterns:
          - name: conv_relu
            pattern: |
              c = Conv(x, w)
              Relu(c)
            where:
              - x.rank == 4
              - w.is_const
          - name: relu
            doc: 'ReLU: alone.'
            pattern: |
              Relu(x)
        """
    )


@pytest.mark.parametrize("off", [{"one"}, {"two"}, {"one", "two"}], ids=["first", "last", "all"])
def test_rules_are_commented_out(off: set[str]) -> None:
    """Whole, texts of several lines included; what is left loads, and so does all without the #."""
    texts = ("g (x) => (y) {\n\n y = Relu (x) }", "any")
    example = Example(before=texts[0], after=texts[1])
    rules = [
        rule("Relu(x)", "x.rank == 1", name=name, examples=(example,)) for name in ("one", "two")
    ]
    text = write_catalog(rules, doc="d", comments={"one": "Not proved: why."}, off=off)
    assert text.count("Not proved: why.") == 1
    assert {read.name for read in catalog_rules(text)} == {"one", "two"} - off
    for name in off:
        assert f"  # - name: {name}\n" in text
    lines = [line.replace("  # ", "  ").replace("  #", "") for line in text.splitlines()]
    whole = "\n".join(line.removesuffix(" []") for line in lines if "Not proved" not in line)
    assert [read.name for read in catalog_rules(whole)] == ["one", "two"]


def test_everything_a_rule_says_reads_back() -> None:
    """Policies, metadata, opsets and examples come through."""
    example = Example(before="g (x) => (y) { y = Relu (x) }", after="unchanged")
    written = rule(
        "Relu(x)",
        'x.dtype == "float32"',
        doc="Line one\nline two: # no comment",
        constants="embed",
        escape="outputs",
        order="program",
        metadata={"kernel": "relu\tv1"},
        opsets=(13, 20),
        examples=(example,),
    )
    (read,) = catalog_rules(write_catalog([written]))
    for name in ("target", "name", "doc", "pattern", "constants", "escape", "order", "opsets"):
        assert getattr(read, name) == getattr(written, name)
    assert read.metadata == written.metadata
    assert [item.text for item in read.where] == ['x.dtype == "float32"']
    assert [(item.before, item.after) for item in read.examples] == [
        (example.before, example.after)
    ]


@pytest.mark.parametrize(("opsets", "read"), [((None, 9), (1, 9)), ((9, None), (9, None))])
def test_half_open_opsets(
    opsets: tuple[int | None, int | None], read: tuple[int | None, int | None]
) -> None:
    """A catalogue needs a first opset to name a last one."""
    assert catalog_rules(write_catalog([rule("Relu(x)", opsets=opsets)]))[0].opsets == read


def test_policies_that_differ_stand_with_each_rule() -> None:
    """What all rules share stands once; else each says its own."""
    rules = [rule("Relu(x)", name="a", constants="lift"), rule("Abs(x)", name="b")]
    assert "\nconstants: lift\n" in write_catalog(rules[:1])
    text = write_catalog(rules)
    assert text.count("constants") == 1
    assert [item.constants for item in catalog_rules(text)] == ["lift", "auto"]


@pytest.mark.parametrize("text", ["\x81", "\u2028", "\x07", "\u00e9", "'\"", "a: #b", "\\n"])
def test_any_text_in_a_pattern_survives(text: str) -> None:
    """What YAML cannot print as it is gets quoted."""
    pattern = rule("Einsum(x)").pattern.has_attr({"equation": text})  # type: ignore[attr-defined]
    (read,) = catalog_rules(write_catalog([rule(pattern)]))
    assert read.pattern == pattern


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "a-b"}, "name: 'a-b' is not a name: letters, digits and _"),
        ({"target": "1x"}, "target: '1x' is not a name: letters, digits and _"),
        ({"target": "ai.onnx"}, "target: 'ai.onnx': the standard's own domains cannot be a target"),
        (
            {"check": lambda _match: None},
            "rule 'r': its check is Python code, which YAML cannot hold",
        ),
    ],
)
def test_refuses_what_no_catalogue_can_say(settings: dict[str, object], message: str) -> None:
    """A bad name is refused before anybody writes a file with it."""
    with pytest.raises(CatalogError) as caught:
        write_catalog([rule("Relu(x)", **settings)])
    assert caught.value.message == message


def test_refuses_several_targets() -> None:
    """One catalogue has one target."""
    with pytest.raises(CatalogError, match="a catalogue has one target, not t, u"):
        write_catalog([rule("Relu(x)"), rule("Abs(x)", target="u")])
