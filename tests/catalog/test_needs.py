"""What catalogues, plans and Python functions are made of: found without executing anything."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dplcli.catalog.needs import files_named

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes files into the folder where we are: texts by names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def call(**texts: str) -> None:
        for name, text in texts.items():
            path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return call


def named(*texts: str) -> set[str]:
    """Return the names of the files that texts name, as they are seen from here."""
    here = Path.cwd()
    return {str(each.relative_to(here)) for each in files_named(texts)}


@pytest.mark.parametrize("spelling", ["lib/feeds.py:make", "lib.feeds:make", "lib/feeds.py"])
def test_a_function_needs_what_its_module_imports(write: Write, spelling: str) -> None:
    """From beside it, in whatever way, with or without __init__.py; not Python's own."""
    write(
        lib__feeds_DOT_py="""
            import json, numpy
            from . import near
            if True:
                from sub.inner import deep
            def make(seed):
                import importlib
                return importlib.import_module("late")
            """.replace("\n            ", "\n"),
        lib__near_DOT_py="import circle",
        circle_DOT_py="from lib import near",
        lib__circle_DOT_py="",
        lib__other_DOT_py="",
        lib__late_DOT_py="raise RuntimeError('executed')",
        late_DOT_py="",
        sub__inner_DOT_py="import broken",
        sub__deep_DOT_py="",
        broken_DOT_py="not Python",
    )
    needed = {"lib/feeds.py", "lib/near.py", "circle.py", "sub/inner.py", "broken.py", "late.py"}
    assert needed <= named(spelling)
    assert not named(spelling) & {"lib/other.py", "sub/deep.py"}


def test_code_needs_the_files_that_its_texts_name(write: Write) -> None:
    """Beside it, here, or in a folder that another text names."""
    code = "import numpy as np\nHERE = Path(__file__).parent\nnp.load(HERE / 'data' / 'x.npy')\n"
    write(lib__feeds_DOT_py=f"{code}open('conf.json')", conf_DOT_json="{}", lib__data__x_DOT_npy="")
    assert named("lib/feeds.py:make") == {"lib/feeds.py", "conf.json", "lib/data/x.npy"}


def test_a_catalogue_needs_what_it_includes_and_the_modules_of_its_checks(write: Write) -> None:
    """Those of each combination of values, and of files that are included."""
    rule = "patterns:\n- {name: '${f}', pattern: Relu(x), check: 'near:${f}'}\n"
    each = "rewrites:\n- {name: r, function: '${m}:f', for_each: {m: [one, two]}}\n"
    write(
        c__main_DOT_yaml=f"include: [sub/more.yaml]\n{each}",
        c__sub__more_DOT_yaml=rule.replace("${f}", "ok"),
        c__sub__near_DOT_py="import far",
        c__sub__far_DOT_py="",
        c__one_DOT_py="",
        c__two_DOT_py="",
        c__three_DOT_py="",
    )
    assert named("c/main.yaml") == {
        *("c/main.yaml", "c/sub/more.yaml", "c/sub/near.py", "c/sub/far.py"),
        *("c/one.py", "c/two.py"),
    }


def test_a_plan_needs_its_catalogues(write: Write) -> None:
    """By their paths from the plan; what dpl ships is a part of dpl."""
    text = "schema: dpl.plan/1\ncatalogues: [../c.yaml, fuse]\n"
    write(p__plan_DOT_yaml=text, c_DOT_yaml="patterns: []")
    assert named("p/plan.yaml") == {"p/plan.yaml", "c.yaml"}


def test_an_installed_catalogue_is_its_whole_package(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And other modules of its distribution, but no other distribution."""
    info = "site__acme-1_DOT_0_DOT_dist-info__"
    write(
        **{
            "site__acme__rules_DOT_yaml": "",
            f"{info}METADATA": "Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n",
            f"{info}entry_points_DOT_txt": "[dplcli.catalogs]\nmine = acme.rules:CATALOG\n",
            f"{info}top_level_DOT_txt": "acme\nacme_more\n",
            "site__acme__rules_DOT_py": "import acme_more, acme_free, other",
            "site__acme_more_DOT_py": "from . import deeper",
            "site__acme_free_DOT_py": "",
            "site__other_DOT_py": "",
            "site__other-1_DOT_0_DOT_dist-info__METADATA": "Name: other\nVersion: 1.0\n",
            "site__other-1_DOT_0_DOT_dist-info__top_level_DOT_txt": "other\n",
        },
    )
    (tmp_path / "site" / "acme" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "site")
    files = {name for name in named("mine") if name.endswith((".py", ".yaml"))}
    assert files == {
        *("site/acme/__init__.py", "site/acme/rules.py", "site/acme/rules.yaml"),
        *("site/acme_more.py", "site/acme_free.py"),
    }
    assert "site/acme/rules.py" in named("acme.rules:check")


def test_other_texts_name_nothing(write: Write) -> None:
    """Not a pattern, a scheduler or a word."""
    write(m_DOT_txt="")
    assert named("Relu(x)", "tcp://host:8786", "batch", "", "a\0b", "x" * 5000, "1:2") == set()
