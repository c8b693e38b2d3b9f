"""``dpl doctor``: what dpl runs on, and what is wrong with it."""

import json
from importlib.metadata import EntryPoint, PackageNotFoundError

import onnxruntime
import pytest

from dplcli.errors import VerificationError
from dplcli.execute.onednn import library
from dplcli.pipeline import doctor
from tests.cli.support import Dpl


def test_what_is_there_is_listed(dpl: Dpl) -> None:
    """The providers are those of onnxruntime here, the catalogues those of dpl."""
    answer = dpl("doctor")
    record = json.loads(dpl("doctor", "--json", "-").out)

    assert (answer.code, answer.err) == (0, "")
    assert answer.out.endswith("No problems.\n")
    assert record["schema"] == "dpl.doctor/1"
    assert record["providers"] == onnxruntime.get_available_providers()
    assert record["versions"]["onnxruntime"] == onnxruntime.__version__
    assert record["catalogs"]["prepare"] == "dpl"
    assert record["problems"] == []
    for provider in record["providers"]:
        assert provider in answer.out


def test_an_extra_names_what_it_lacks(dpl: Dpl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that are installed are not named; requirements without an extra are no extra."""
    lines = ["numpy>=1.26", 'numpy>=1.26 ; extra == "full"', "absent-one[a]>=2; extra == 'part'"]
    lines += ['absent-two; python_version >= "3.8" and extra == "part"', "numpy; extra == 'part'"]
    monkeypatch.setattr(doctor, "requires", lambda _name: lines)

    record = json.loads(dpl("doctor", "--json", "-").out)

    assert record["missing"] == {"full": [], "part": ["absent-one", "absent-two"]}
    assert "part: lacks absent-one, absent-two" in dpl("doctor").out


def test_a_checkout_that_is_not_installed_has_no_extras(
    dpl: Dpl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known of them then."""

    def missing(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "requires", missing)

    assert json.loads(dpl("doctor", "--json", "-").out)["missing"] == {}


def test_problems_are_told_and_end_with_one(dpl: Dpl, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package whose catalogue does not load, and an onnxruntime that does not."""
    point = EntryPoint("acme", "no_such_module:CATALOG", "dplcli.catalogs")
    monkeypatch.setattr(doctor, "installed_catalogs", lambda: {"acme": point})

    def broken() -> tuple[str, ...]:
        raise VerificationError("onnxruntime cannot be loaded: no libonnxruntime")

    monkeypatch.setattr(doctor, "available_providers", broken)

    answer = dpl("doctor")

    assert (answer.code, answer.err) == (1, "")
    assert "problem: no model can be run or verified: onnxruntime cannot be loaded" in answer.out
    assert "No module named 'no_such_module'" in answer.out
    assert answer.out.endswith("2 problems.\n")


def test_the_library_that_runs_partitions_is_looked_for(
    dpl: Dpl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it was looked for, if there is none; that is no problem, as few need it."""
    monkeypatch.setenv(library.VARIABLE, "/nowhere/libdnnl.so.3")

    answer = dpl("doctor")
    record = json.loads(dpl("doctor", "--json", "-").out)

    assert answer.code == 0
    assert "oneDNN         not found; looked for /nowhere/libdnnl.so.3" in answer.out
    assert record["libraries"]["oneDNN"] == {
        "version": "",
        "path": "",
        "looked_for": ["/nowhere/libdnnl.so.3"],
        "problem": "",
        "features": [],
    }


def test_the_library_is_named_and_a_faulty_one_is_a_problem(
    dpl: Dpl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version and file; one that is known to be bad is said to be."""
    found = json.loads(dpl("doctor", "--json", "-").out)["libraries"]["oneDNN"]
    if not found["version"]:
        pytest.skip("oneDNN is not installed")
    one, two, three = map(int, found["version"].split("."))
    version = (one, two, three)
    assert found["path"] in found["looked_for"]
    assert f"{found['version']}, {found['path']}" in dpl("doctor").out

    fault = library.Fault(version, (99, 0, 0), is_of_steps=False, isa=0, what="it is wrong")
    monkeypatch.setattr(library, "KNOWN_BAD", (fault,))
    answer = dpl("doctor")

    assert answer.code == 1
    assert "oneDNN         cannot be used" in answer.out
    assert "which is known to be faulty: it is wrong" in answer.out
