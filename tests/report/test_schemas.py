"""Reports keep to the schemas of their formats."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import xmlschema

from dplcli.report.ci import junit_xml, sarif_record
from tests.report.made import documents

SCHEMAS = Path(__file__).with_name("schemas")
SARIF = jsonschema.Draft7Validator(json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_text()))
JUNIT = xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")
DOCUMENTS = documents()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_sarif_is_sarif(name: str) -> None:
    """Whatever names are in it."""
    record = json.loads(json.dumps(sarif_record(DOCUMENTS[name])))

    assert [error.message for error in SARIF.iter_errors(record)] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_junit_is_what_jenkins_takes(name: str) -> None:
    """Its schema is the one that most readers of JUnit go by."""
    assert [error.reason for error in JUNIT.iter_errors(junit_xml(DOCUMENTS[name]))] == []


def test_the_schemas_refuse_what_is_wrong() -> None:
    """Else the tests above would say nothing."""
    record = json.loads(json.dumps(sarif_record(next(iter(DOCUMENTS.values())))))
    record["runs"][0]["invocations"][0]["executionSuccessful"] = "yes"
    assert list(SARIF.iter_errors(record))
    assert list(JUNIT.iter_errors("<testsuites><testcase name='n'/></testsuites>"))
