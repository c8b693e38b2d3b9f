"""``dpl schema``: a JSON Schema for every document, to which the documents keep."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

import dplcli
from dplcli.cli.schema import documents_known
from tests.cli.support import SAMPLES, Dpl
from tests.support.schemas import checked, mistakes

PACKAGE = Path(dplcli.__file__).parent
INSIDE = {"dpl.layers/1", "dpl.results/1"}
"""Parts of other documents, and of an archive of numpy."""


def test_every_document_has_one() -> None:
    """A schema that the code names is one that the command knows."""
    texts = [path.read_text("utf-8") for path in PACKAGE.rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"dpl\.[a-z.]+/1", text)}

    known = {f"dpl.{name}/1" for name in documents_known()}
    assert known - named == {"dpl.catalogue/1", "dpl.pipeline/1"}
    assert named - known == INSIDE


def test_without_a_name_they_are_listed(dpl: Dpl) -> None:
    """Each with what it is; the name is what the command takes."""
    lines = dpl("schema").out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(documents_known())
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("name", ["match", "plan", "catalogue", "pipeline", "dpl.verify/1"])
def test_a_schema_is_printed(dpl: Dpl, name: str) -> None:
    """It is a schema, and what it describes takes no key that it does not name."""
    answer = dpl("schema", name)
    schema = json.loads(answer.out)

    assert answer.code == 0
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False


def test_an_unknown_one_is_an_error(dpl: Dpl) -> None:
    """With the one that was probably meant."""
    answer = dpl("schema", "partiton")
    assert (answer.code, answer.hint) == (2, "did you mean 'partition'?")


def test_a_key_that_is_forgotten_is_a_mistake(dpl: Dpl) -> None:
    """So is one that is missing; else the tests that hold documents against schemas say nothing."""
    record = json.loads(
        dpl("match", SAMPLES / "residual_block.onnx", "-p", "conv_relu", "--json", "-").out
    )
    assert mistakes(record) == []
    assert "'new' was unexpected" in mistakes(record | {"new": 1})[0]
    record["matches"][0]["root"]["new"] = 1
    assert "'new' was unexpected" in mistakes(record)[0]
    del record["matches"][0]["root"]
    assert "'root' is a required property" in mistakes(record)[0]
    with pytest.raises(AssertionError, match="is a required property"):
        checked(lambda _: {"schema": "dpl.match/1"})({})


def test_the_schema_of_python_is_that_of_the_command(tmp_path: Path) -> None:
    """``to_json`` of a result is what ``--json`` writes."""
    found = dplcli.match(SAMPLES / "residual_block.onnx", patterns="conv_relu").to_json()
    assert list(found)[:3] == ["schema", "dpl_version", "model"]
    assert found["dpl_version"] == dplcli.__version__
    assert found["counts"] == {"dnnl.conv2d_bias_relu": 2}
    assert list(tmp_path.iterdir()) == []
