"""The pages for those who see, hear or type otherwise: roles, names, contrast, the way of Tab.

axe-core looks at all that it knows rules for, where the package is installed. It does not look at
text in drawings, so contrast there is measured here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import onnx
import onnx.numpy_helper
import pytest

from tests.browser.test_report_page import SAMPLES
from tests.browser.test_view_page import SCHEMES, WIDTHS
from tests.support.calling import exit_code

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.browser.conftest import Open

    Write = Callable[..., Path]

PAGES = pytest.mark.parametrize("kind", ["view", "layers", "explain", "partition"])


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that writes a page of a kind, once."""
    folder = tmp_path_factory.mktemp("pages")
    model = onnx.load(SAMPLES / "residual_block.onnx")
    weights = [each for each in model.graph.initializer if len(each.dims) == 4]
    array = onnx.numpy_helper.to_array(weights[-1]) * 1.5
    weights[-1].CopyFrom(onnx.numpy_helper.from_array(array, weights[-1].name))
    onnx.save(model, folder / "b.onnx")
    (folder / "rules.yaml").write_text(
        "dpl: 1\ntarget: t\npatterns:\n- {name: p, pattern: 'Relu(Add(Conv(x, w), const()))'}\n"
    )
    plain = SAMPLES / "residual_block.onnx"
    commands: dict[str, tuple[object, ...]] = {
        "view": ("view", SAMPLES / "resnet18_bn.onnx", "-o"),
        "layers": ("verify", plain, folder / "b.onnx", "--layers", "--html"),
        "explain": ("explain", plain, "-p", folder / "rules.yaml", "--html"),
        "partition": (
            *("partition", SAMPLES / "resnet18_bn.onnx", "-p", "conv_relu"),
            *("-o", folder / "p.onnx", "--html"),
        ),
    }

    def written(kind: str) -> Path:
        path = folder / f"{kind}.html"
        if not path.exists():
            with pytest.MonkeyPatch.context() as patch:
                exit_code(patch, [*commands[kind], path, "-q"])
        return path

    return written


@pytest.fixture
def page(pages: Callable[[str], Path], show: Open) -> Callable[..., Any]:
    """Return a function that shows a page with its graphs drawn."""

    def shown(kind: str, **window: object) -> Any:  # noqa: ANN401  # Playwright's
        found = show(pages(kind), **window)
        if kind != "view":
            found.locator("#graphs").scroll_into_view_if_needed()
            found.wait_for_selector("#graphs[data-ready]")
        return found

    return shown


ROOT = "(document.querySelector('#graphs')?.shadowRoot ?? document)"


@pytest.mark.long
@PAGES
@WIDTHS
@SCHEMES
def test_axe_finds_no_fault(page: Callable[..., Any], kind: str, width: int, scheme: str) -> None:
    """Neither at first, nor with details shown, nor coloured by a number."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-core").Axe()
    found = page(kind, width=width, scheme=scheme)
    faults = set()
    for act in (
        "null",
        f"{ROOT}.querySelector('#about').click()",
        f"{ROOT}.querySelector('.item.closed').focus()",
    ):
        found.evaluate(act)
        answer = axe.run(found).response
        faults |= {
            (each["id"], str(n["target"])) for each in answer["violations"] for n in each["nodes"]
        }

    assert faults == set()


CONTRASTS = """() => {
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const lightness = (colour) => {
    paint.fillStyle = colour;
    paint.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...paint.getImageData(0, 0, 1, 1).data].map((each) => each / 255)
      .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const root = ROOT;
  return [...root.querySelectorAll(".item.closed > text")].map((text) => {
    const frame = text.parentElement.querySelector(".frame");
    const ends = [getComputedStyle(text).fill, getComputedStyle(frame).fill].map(lightness);
    return [(Math.max(...ends) + 0.05) / (Math.min(...ends) + 0.05), text.textContent,
            text.parentElement.getAttribute("class")];
  });
}""".replace("ROOT", ROOT)


@SCHEMES
@pytest.mark.parametrize("kind", ["view", "layers"])
def test_what_is_written_on_nodes_can_be_read(
    page: Callable[..., Any], kind: str, scheme: str
) -> None:
    """In each colouring, on each step of a number: at least 4.5 to 1, as WCAG asks."""
    found = page(kind, scheme=scheme)
    colourings = found.locator("#colours option").evaluate_all(
        "all => all.map((each) => each.value)"
    )
    assert "cost" in colourings
    steps = [f"step-{number}" for number in range(6)] + [f"over-{number}" for number in (1, 2, 3)]
    for by in colourings:
        found.locator("#colours").select_option(by)
        for step in [None, *steps] if by else [None]:
            if step:
                found.evaluate(
                    "(step) => ROOT.querySelectorAll('.item.closed').forEach((each) => {"
                    "  each.setAttribute('class', `item closed ${step}`); })".replace("ROOT", ROOT),
                    step,
                )
            ratios = found.evaluate(CONTRASTS)
            assert ratios
            assert min(ratios)[0] >= 4.5, (by, min(ratios))


@SCHEMES
def test_steps_of_a_number_differ_in_lightness(page: Callable[..., Any], scheme: str) -> None:
    """Each from the next, so that no colour needs to be told from another by its hue alone."""
    found = page("layers", scheme=scheme)
    lights = found.evaluate(
        """() => {
        const often = { willReadFrequently: true };
        const paint = document.createElement("canvas").getContext("2d", often);
        const view = ROOT.querySelector(".view");
        const of = (name) => {
          paint.fillStyle = getComputedStyle(view).getPropertyValue(name);
          paint.fillRect(0, 0, 1, 1);
          const [r, g, b] = paint.getImageData(0, 0, 1, 1).data;
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        return [["--page", "--s1", "--s2", "--s3", "--s4", "--s5"], ["--o1", "--o2", "--o3"]]
          .map((names) => names.map(of));
        }""".replace("ROOT", ROOT)
    )
    sign = 1 if scheme == "dark" else -1
    for run in lights:
        gaps = [sign * (after - before) for before, after in pairwise(run)]
        assert min(gaps) > 8


def test_tab_goes_through_a_report_once(page: Callable[..., Any]) -> None:
    """Into the graphs, through search, tools, steps, both graphs and colours, and out again."""
    found = page("partition")
    found.evaluate("document.querySelector('.wide')?.scrollIntoView()")
    reached = []
    for _ in range(60):
        found.keyboard.press("Tab")
        reached.append(
            found.evaluate(
                """() => {
                let at = document.activeElement;
                if (at.shadowRoot) at = at.shadowRoot.activeElement ?? at;
                return at.id || at.getAttribute("class") || at.tagName;
                }"""
            )
        )
    for name in ("search", "openAll", "next", "step", "colours"):
        assert reached.count(name) >= 1, reached
    items = [place for place, name in enumerate(reached) if name.startswith("item")]
    assert len(items) >= 2
    assert reached.index("search") < reached.index("step") < items[0] < len(reached) - 1
    assert any(name.startswith("wide") for name in reached[items[-1] :])


def test_what_a_reader_hears(page: Callable[..., Any]) -> None:
    """Nodes are items of a tree, with level, name, mark and number; groups say if they are open."""
    found = page("layers")
    items = found.locator(".stage").first.get_by_role("treeitem")
    assert items.count() >= 5
    first = found.locator(".item.mark-first").first
    assert "first to differ" in first.get_attribute("aria-label")
    assert "times" in first.get_attribute("aria-label")
    assert int(first.get_attribute("aria-level")) >= 1
    for label in found.locator(".stage").evaluate_all(
        "all => all.map((e) => e.getAttribute('aria-label'))"
    ):
        assert label.startswith("The graph of ")


@pytest.mark.parametrize("kind", ["view", "partition"])
def test_pages_print(page: Callable[..., Any], kind: str) -> None:
    """All of each graph, in dark mode, too, as it is drawn; without what is pressed."""
    found = page(kind, scheme="dark", width=800)
    found.emulate_media(media="print", color_scheme="dark")
    found.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    for stage in found.locator(".stage").all():
        box = stage.bounding_box()
        assert box["height"] > 100
        for item in stage.locator(".item.input, .item.output").all():
            spot = item.bounding_box()
            assert box["y"] - 1 <= spot["y"] <= box["y"] + box["height"] + 1
    assert not found.locator("#search").is_visible()
    assert not found.locator(".corner").first.is_visible()
    assert len(found.pdf(print_background=True)) > 2_000
    found.evaluate("window.dispatchEvent(new Event('afterprint'))")
