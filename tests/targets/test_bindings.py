"""The C header and the Python classes: they compile, and say what the contract says."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dplcli import pipeline
from dplcli.targets.bindings import c_header, camel, comment, identifier, python_stub
from dplcli.targets.contract import (
    AttributeContract,
    BodyNode,
    Contract,
    FunctionContract,
    PortContract,
)

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

HOSTILE = (
    "int", "INT", "class", "self", "a b", "a-b", "a.b", "1x", "", "ü", "has_x", "x", "np",
    "lambda", "and", "none", "Inputs", "*/ int evil; /*", '"quoted"', "back\\slash", "line\nbreak",
    "??/", "/*", "%s", "{{ x }}", "import", "none", "NAME",
)  # fmt: skip
KINDS = ("int", "float", "string", "ints", "floats", "strings", "tensor", "sparse_tensor", "")


def function(domain: str, name: str, *, is_given: bool = True) -> FunctionContract:
    """Return a function all of whose names are hostile."""
    ports = tuple(PortContract(text, ("float32",), (4,)) for text in HOSTILE)
    attributes = tuple(
        AttributeContract(text, KINDS[i % len(KINDS)], 0, text, (text,), 1, is_given=is_given)
        for i, text in enumerate(HOSTILE)
    )
    body = (BodyNode("Op*/", domain, HOSTILE, HOSTILE, {}, {"k*/": "v*/"}),)
    return FunctionContract(
        domain, name, f"{domain}.{name}", domain, 3, {}, ports, attributes, ports[:1], body,
        conditions=HOSTILE, variations=HOSTILE, doc=" ".join(HOSTILE),
    )  # fmt: skip


def hostile_contract() -> Contract:
    """Return many functions whose names differ only in what identifiers cannot say."""
    names = [name or "f" for name in HOSTILE]
    functions = [function("my.domain", name) for name in dict.fromkeys(names)]
    functions += [function("my_domain", "a b", is_given=False), function("int", "int")]
    empty = FunctionContract("t", "empty", "", "t", 0, {}, (), (), (), ())
    pair = FunctionContract(
        "t", "pair", "t.pair", "t", 1, {}, (), (),
        (PortContract("p", ("bfloat16",)), PortContract("q", ("float32", "float16"))), (),
    )  # fmt: skip
    return Contract('m*/ """.onnx', (*functions, empty, pair))


def compiled(folder: Path, header: str, source: str) -> subprocess.CompletedProcess[str]:
    """Compile *source*, which includes kernels.h, as C11 or, if it is C++, as C++17."""
    (folder / "kernels.h").write_text(header, encoding="utf-8")
    is_c = not source.startswith("// C++")
    compiler = shutil.which("gcc" if is_c else "g++")
    if compiler is None:
        pytest.skip("gcc or g++ is not installed")
    path = folder / ("kernels_test.c" if is_c else "kernels_test.cc")
    path.write_text(source, encoding="utf-8")
    command = [compiler, "-std=c11" if is_c else "-std=c++17", "-fsyntax-only"]
    command += ["-Wall", "-Wextra", "-Werror", "-pedantic", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603


@pytest.mark.parametrize("language", ["// C", "// C++"])
def test_a_header_compiles_whatever_the_names(language: str, tmp_path: Path) -> None:
    """Keywords, blanks, comment ends, quotes, trigraphs, names that differ in case only."""
    source = language + '\n#include "kernels.h"\n#include "kernels.h"\nint unused;\n'
    done = compiled(tmp_path, c_header(hostile_contract(), "kernels.h"), source)

    assert done.returncode == 0, done.stderr[:2000]


@pytest.mark.long
@pytest.mark.parametrize(
    "catalogue",
    ["conv_relu", "fuse", pytest.param("cutlass", marks=pytest.mark.exhaustive)],
)
def test_the_header_of_a_shipped_catalogue_compiles(catalogue: str, tmp_path: Path) -> None:
    """Every form of every rule has identifiers of its own, in C and in C++."""
    contract = pipeline.catalog_contract([catalogue])
    header = c_header(contract, "kernels.h")
    for language in ("// C", "// C++"):
        done = compiled(tmp_path, header, language + '\n#include "kernels.h"\nint unused;\n')
        assert done.returncode == 0, done.stderr[:2000]

    assert header.count("\nint dpl_") == len(contract.functions)


def test_two_headers_can_be_included_together(tmp_path: Path) -> None:
    """The types that they share are declared once."""
    contract = Contract("m", (function("a", "f"),))
    (tmp_path / "others.h").write_text(c_header(Contract("n", (function("b", "f"),)), "others.h"))
    source = '#include "kernels.h"\n#include "others.h"\nint unused;\n'
    done = compiled(tmp_path, c_header(contract, "kernels.h"), source)

    assert done.returncode == 0, done.stderr[:2000]


def test_a_header_says_what_the_contract_says(tmp_path: Path) -> None:
    """Numbers of inputs, names for onnxruntime, types of attributes: checked by the compiler."""
    contract = Contract(
        "m",
        (
            FunctionContract(
                "dnnl", "conv", "dnnl.conv", "dnnl", 2, {},
                (PortContract("x"), PortContract("w")),
                (AttributeContract("group", "int", 0, "group"),
                 AttributeContract("pads", "ints", 0, "pads", is_given=False)),
                (PortContract("y"),),
                (BodyNode("Conv", "", ("x", "w"), ("y",), {}, {}),),
            ),
        ),
    )  # fmt: skip
    source = """
        #include "kernels.h"
        _Static_assert(DPL_DNNL_CONV_INPUT_X == 0 && DPL_DNNL_CONV_INPUT_W == 1, "inputs");
        _Static_assert(DPL_DNNL_CONV_INPUTS == 2 && DPL_DNNL_CONV_OUTPUTS == 1, "counts");
        _Static_assert(DPL_FLOAT32 == 1 && DPL_BFLOAT16 == 16, "types");
        _Static_assert(sizeof DPL_DNNL_CONV_NAME == sizeof "conv", "name");
        int dpl_dnnl_conv(
            const struct dpl_dnnl_conv_attributes *attributes,
            const struct dpl_tensor *const *inputs,
            struct dpl_tensor *const *outputs) {
          const int64_t *pads = attributes->has_pads ? attributes->pads.data : 0;
          int64_t group = attributes->group;
          return inputs[DPL_DNNL_CONV_INPUT_W]->rank == 4 && pads && group && outputs;
        }
        const char *names[] = {DPL_DNNL_CONV_DOMAIN, DPL_DNNL_CONV_RULE, DPL_DNNL_CONV_BODY,
                               DPL_DNNL_CONV_ATTRIBUTE_PADS};
    """
    header = c_header(contract, "kernels.h")
    done = compiled(tmp_path, header, source)

    assert done.returncode == 0, done.stderr[:2000]
    assert '#define DPL_DNNL_CONV_DOMAIN "dnnl"' in header
    assert '#define DPL_DNNL_CONV_ATTRIBUTE_PADS "pads"' in header
    assert "has_group" not in header


# -- Python ----------------------------------------------------------------------------------------


def imported(path: Path) -> ModuleType:
    """Import a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def strict(path: Path) -> subprocess.CompletedProcess[str]:
    """Check a file with mypy."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-incremental"]
    return subprocess.run(  # noqa: S603  # our own file
        [*command, str(path)], capture_output=True, text=True, check=False, timeout=200
    )


def test_a_module_imports_whatever_the_names(tmp_path: Path) -> None:
    """Every function has a class, and names in it are the contract's, not the identifiers'."""
    path = tmp_path / "kernels.py"
    contract = hostile_contract()
    path.write_text(python_stub(contract), encoding="utf-8")
    module = imported(path)
    classes = [c for c in vars(module).values() if hasattr(c, "INPUTS")]

    assert {(c.DOMAIN, c.NAME) for c in classes} == {(f.domain, f.name) for f in contract.functions}
    assert len(classes) == len(contract.functions)
    assert sum(c.INPUTS == c.ATTRIBUTES == HOSTILE for c in classes) == len(contract.functions) - 2


@pytest.mark.long
def test_a_kernel_is_a_typed_subclass(tmp_path: Path) -> None:
    """The right signature passes mypy and runs; a wrong one is an error; none is abstract."""
    contract = pipeline.catalog_contract(["conv_relu"], only=["conv2d_relu", "conv2d_bn_clip"])
    (tmp_path / "kernels.py").write_text(python_stub(contract), encoding="utf-8")
    (tmp_path / "hostile.py").write_text(python_stub(hostile_contract()), encoding="utf-8")
    path = tmp_path / "own.py"
    path.write_text(
        """
from __future__ import annotations
from collections.abc import Sequence
import hostile
import numpy as np
import numpy.typing as npt
from kernels import DnnlConv2dRelu

Array = npt.NDArray[np.generic]

class Kernel(DnnlConv2dRelu):
    def __call__(
        self, x: Array, w: Array, *, auto_pad: str | None = None,
        dilations: Sequence[int] | None = None, group: int | None = None,
        kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Array:
        return np.maximum(x, 0)

class Wrong(DnnlConv2dRelu):
    def __call__(self, x: Array) -> Array:
        return x

KERNEL = Kernel()
ABSTRACT = DnnlConv2dRelu()
"""
    )
    found = strict(path).stdout

    assert 'own.py:21: error: Signature of "__call__" incompatible' in found
    assert "own.py:25: error: Cannot instantiate abstract class" in found
    assert "kernels.py" not in found, found
    assert "hostile.py" not in found, found
    assert found.count("error:") == 2, found


def test_types_are_numpys() -> None:
    """Known types are stated; types that numpy lacks are not."""
    text = python_stub(hostile_contract())

    assert "tuple[npt.NDArray[np.generic], npt.NDArray[np.float32 | np.float16]]" in text
    assert "import numpy as np" in text


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [("conv2d_relu", "conv2d_relu"), ("a.b-c", "a_b_c"), ("1x", "n1x"), ("", "n"), ("ü", "_")],
)
def test_identifiers_keep_what_they_can(name: str, expected: str) -> None:
    """Letters, digits and underscores stay."""
    assert identifier(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("dnnl_conv2d_relu", "DnnlConv2dRelu"), ("dnnl_QLinearConv", "DnnlQLinearConv"), ("_", "N")],
)
def test_classes_are_in_camel_case(name: str, expected: str) -> None:
    """The case inside words stays."""
    assert camel(name) == expected


@pytest.mark.parametrize("text", ["*/", "*\n/", "**//", "??/", "\\", "/*", "ü*/", "*/*/", "???/"])
def test_no_text_ends_a_comment(text: str) -> None:
    """Nor opens another, nor is a trigraph or a line's continuation."""
    found = comment(text)

    assert not any(part in found for part in ("*/", "/*", "??", "\\", "\n"))
    assert found.isascii()
