"""What holds for all tests: where real models are, and that no quick test needs a corpus."""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings
from xdist.scheduler import WorkStealingScheduling

import dplcli.report.document
import dplcli.report.json
import dplcli.report.many
from dplcli.onnx_io.bounded import made_by_dpl
from tests.corpus.nets import ABSENT, VARIABLE, corpus, corpus_manifest
from tests.support.schemas import checked

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from xdist.remote import Producer

# The same commit gives the same answer, always, however busy the machine is: no health check asks
# a clock. The exhaustive part draws ten times as much; --hypothesis-profile=random draws anew.
settings.register_profile(
    "fixed",
    max_examples=20,
    derandomize=True,
    deadline=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
settings.register_profile("exhaustive", settings.get_profile("fixed"), max_examples=200)
settings.register_profile("random", settings.get_profile("exhaustive"), derandomize=False)
settings.load_profile("fixed")


@pytest.fixture(scope="session", autouse=True)
def _cache_of_our_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what catalogues give in a folder of the tests, and not in the user's."""
    os.environ["DPL_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def _documents_have_schemas() -> Iterator[None]:
    """Hold every JSON document that a test in this process writes against its published schema."""
    with pytest.MonkeyPatch.context() as patch:
        write = checked(dplcli.report.json.published)
        for module in (dplcli.report.document, dplcli.report.json):
            patch.setattr(module, "published", write)
        patch.setattr(dplcli.report.many, "published", write)
        yield


@pytest.fixture(autouse=True)
def _no_fork_for_each_model(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ask onnx in this process, which is large: a fork of it costs more than most tests.

    Tests of what a fork is for are marked ``forks``; commands in processes of their own do fork.
    """
    if request.node.get_closest_marker("forks"):
        yield
        return
    with made_by_dpl():
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Draw more where the exhaustive part is asked for."""
    if _EXHAUSTIVE.search(config.getoption("markexpr")):
        settings.load_profile("exhaustive")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let tests of what is drawn be in the exhaustive part, too."""
    asked = _EXHAUSTIVE.search(item.config.getoption("markexpr"))
    if asked and is_hypothesis_test(getattr(item, "obj", None)):
        item.add_marker("exhaustive")


def pytest_report_header() -> str:
    """Say which corpus there is."""
    if corpus() is None:
        return f"corpus: none ({VARIABLE} names none); tests of its models are skipped"
    return f"corpus: {len(corpus_manifest())} models in {corpus()}"


_ALL_LONG = re.compile(r"^pytestmark = pytest\.mark\.long$", re.MULTILINE)
_SOME_LONG = re.compile(r"\b(mark\.long|with_long|one_in|each_model)\b")
_EXHAUSTIVE = re.compile(r"\bexhaustive\b")


class _LeftOut(pytest.Module):
    """A file with no test of the part of the suite that is asked for."""

    def collect(self) -> Sequence[pytest.Item | pytest.Collector]:
        """Find nothing."""
        return ()


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Do not import what would be deselected: that takes long, and each process does it."""
    asked, text = parent.config.getoption("markexpr"), module_path.read_text(encoding="utf-8")
    has_some = {"not long": not _ALL_LONG.search(text), "long": bool(_SOME_LONG.search(text))}
    named = {Path(word.partition("::")[0]).resolve() for word in parent.config.args}
    if has_some.get(asked, True) or module_path in named:
        return None
    left_out: pytest.Module = _LeftOut.from_parent(parent, path=module_path)
    return left_out


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is exhaustive, unless it is asked for.

    Raises:
        UsageError: A long test is in a file that does not show that it has any.
    """
    if not _EXHAUSTIVE.search(config.getoption("markexpr")):
        rest = [item for item in items if item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=rest)
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
    files = {item.path for item in items if item.get_closest_marker("long")}
    for path in files:
        if not _SOME_LONG.search(path.read_text(encoding="utf-8")):
            raise pytest.UsageError(f"{path}: _SOME_LONG in conftest.py does not know how it marks")


def pytest_collection() -> None:
    """Collect no garbage among what is made to stay: every walk would be longer than the last."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep what was collected, which stays to the end, out of garbage collections; have fewer."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """Free what a caught error holds: a worker that runs models, say, which the next test takes."""
    gc.collect(0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WorkStealingScheduling:
    """Give each worker files side by side, which share what they read, and let none be idle."""
    return WorkStealingScheduling(config, log)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Name a test as it fails: a run that somebody ends has no summary."""
    if not report.failed or report.when is None:
        return None
    kind = "failed" if report.when == "call" else "error"
    return kind, f"\n{kind.upper()} {report.nodeid}\n", kind.upper()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that lacks a model and is not ``long``: no part of the suite would run it."""
    report = yield
    if report.skipped and ABSENT in str(report.longrepr) and not item.get_closest_marker("long"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} needs a model of the corpus: mark it as long"
    return report
