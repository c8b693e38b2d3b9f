"""Contracts as source text: a header for kernels in C or C++, abstract classes for Python."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from dplcli.ir.types import DTYPE_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dplcli.targets.contract import AttributeContract, Contract, FunctionContract, PortContract


# Names of functions, values and attributes as identifiers of C, C++ and Python.


_C_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class compl concept const const_cast consteval constexpr constinit continue co_await
    co_return co_yield decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not
    not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
    restrict return short signed sizeof static static_assert static_cast struct switch template
    this thread_local throw true try typedef typeid typename typeof union unsigned using virtual
    void volatile wchar_t while xor xor_eq linux unix
"""
_PYTHON_WORDS = (*keyword.kwlist, "self", "np", "npt")
_OTHER = re.compile(r"[^0-9A-Za-z_]")


class Identifiers:
    """Identifiers of one scope; no two are alike, whatever their case.

    Args:
        reserved: What must not be used.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = {word.lower() for word in reserved}

    def take(self, name: str) -> str:
        """Return an identifier for *name* that is not taken yet."""
        wanted = identifier(name)
        free, count = wanted, 0
        while free.lower() in self._taken:
            count += 1
            free = f"{wanted}_{count}"
        self._taken.add(free.lower())
        return free


def identifier(name: str) -> str:
    """Return *name* with what identifiers cannot have replaced by underscores."""
    text = _OTHER.sub("_", name)
    return text if text and not text[0].isdigit() else f"n{text}"


def camel(name: str) -> str:
    """Return *name* as a class is called: ``conv2d_bias_relu`` is ``Conv2dBiasRelu``."""
    words = [word for word in _OTHER.sub("_", name).split("_") if word]
    return identifier("".join(word[0].upper() + word[1:] for word in words)) if words else "N"


def comment(text: object) -> str:
    """Return *text* so that it can stand in a comment of C, on one line of ASCII."""
    plain = str(text).encode("ascii", "backslashreplace").decode().replace("\\", "/")
    plain = "".join(char if char.isprintable() else " " for char in plain)
    for pair in ("*/", "/*", "??"):
        while pair in plain:
            plain = plain.replace(pair, " ".join(pair))
    return plain


def c_string(text: str) -> str:
    """Return *text* as a string literal of C, with everything unusual escaped."""
    literal = "".join(_c_char(byte) for byte in text.encode())
    return f'"{literal}"'


def _c_char(byte: int) -> str:
    char = chr(byte)
    return char if char.isascii() and char.isprintable() and char not in '"\\?' else f"\\{byte:03o}"


_C_TYPES = {
    "int": "int64_t ",
    "float": "float ",
    "string": "struct dpl_string ",
    "ints": "struct dpl_ints ",
    "floats": "struct dpl_floats ",
    "strings": "struct dpl_strings ",
    "tensor": "const struct dpl_tensor *",
}
_PYTHON_TYPES = {
    "int": "int",
    "float": "float",
    "string": "str",
    "ints": "Sequence[int]",
    "floats": "Sequence[float]",
    "strings": "Sequence[str]",
    "tensor": "npt.NDArray[np.generic]",
}
_NUMPY_TYPES = {"bool": "np.bool_", "string": "np.object_"} | {
    name: f"np.{name}"
    for name in (
        *("float16", "float32", "float64", "complex64", "complex128"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
}


def c_header(contract: Contract, guard: str) -> str:
    """Return a header that compiles as C11 and as C++17.

    Args:
        contract: The functions.
        guard: What its include guard is made of: the file's name.
    """
    names = Identifiers()
    entries = [_c_entry(f, stem, names) for f, stem in _stems(contract)]
    return _render(
        "contract.h.j2",
        contract=contract,
        entries=entries,
        guard=f"DPL_{identifier(guard).upper()}",
        dtypes=list(enumerate(DTYPE_NAMES)),
    )


def python_stub(contract: Contract) -> str:
    """Return a module with one abstract class per function, typed for ``mypy --strict``."""
    names = Identifiers({"ABC", "ClassVar", "Sequence", "abstractmethod"})
    entries = [_python_entry(f, names.take(camel(stem))) for f, stem in _stems(contract)]
    return _render("contract.py.j2", contract=contract, entries=entries)


def _render(template: str, **values: object) -> str:
    environment = Environment(
        loader=PackageLoader("dplcli.targets"),
        autoescape=False,  # noqa: S701  # it is no HTML; the filters escape
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "comment": comment,
        "c_string": c_string,
        "literal": lambda text: ascii(str(text)),
        "numpy": _numpy,
        "note": _port_note,
        "note_in": _attribute_note,
        "c_type": lambda attribute: _C_TYPES.get(attribute.kind, "const void *"),
        "python_type": lambda attribute: _PYTHON_TYPES.get(attribute.kind, "object"),
    }
    return environment.get_template(template).render(**values)


def _stems(contract: Contract) -> list[tuple[FunctionContract, str]]:
    """Give each function a name of its own.

    What only may be written has no name but the rule's, which the forms of the rule share; there
    the operators of the body tell them apart.
    """
    count = Counter((function.domain, function.name) for function in contract.functions)
    stems = []
    for function in contract.functions:
        stem = f"{function.domain}_{function.name}"
        if count[function.domain, function.name] > 1:
            stem += "_" + "_".join(node.op_type.lower() for node in function.body)
        stems.append((function, stem))
    return stems


def _c_entry(function: FunctionContract, stem: str, names: Identifiers) -> dict[str, Any]:
    """Return a function as the template sees it: ports and attributes with their identifiers."""
    name = names.take(f"dpl_{stem}")
    macro, scope = name.upper(), Identifiers(_C_WORDS.split())
    words = [scope.take(attribute.name) for attribute in function.attributes]
    texts = {
        "DOMAIN": function.domain,
        "RULE": function.rule,
        "NAME": function.name,
        "BODY": " ".join(node.qualified_op for node in function.body),
    }

    def taken(kind: str, parts: Iterable[PortContract | AttributeContract]) -> list[str]:
        return [names.take(f"{macro}_{kind}_{part.name.upper()}") for part in parts]

    return {
        "contract": function,
        "stem": name,
        "macro": macro,
        "inputs": list(zip(taken("INPUT", function.inputs), function.inputs, strict=True)),
        "outputs": list(zip(taken("OUTPUT", function.outputs), function.outputs, strict=True)),
        "attributes": [
            (macro, word, "" if attribute.is_given else scope.take(f"has_{word}"), attribute)
            for macro, word, attribute in zip(
                taken("ATTRIBUTE", function.attributes), words, function.attributes, strict=True
            )
        ],
        "macros": {names.take(f"{macro}_{key}"): text for key, text in texts.items()},
    }


def _python_entry(function: FunctionContract, name: str) -> dict[str, Any]:
    scope = Identifiers(_PYTHON_WORDS)
    inputs = [(scope.take(port.name), port) for port in function.inputs]
    attributes = [(scope.take(attribute.name), attribute) for attribute in function.attributes]
    return {"contract": function, "stem": name, "inputs": inputs, "attributes": attributes}


def _numpy(port: PortContract) -> str:
    types = [_NUMPY_TYPES.get(dtype, "np.generic") for dtype in port.dtypes]
    if not types or port.unknown or "np.generic" in types:
        return "npt.NDArray[np.generic]"
    return f"npt.NDArray[{' | '.join(types)}]"


# What is known of ports and attributes, for comments.


def _port_note(port: PortContract) -> str:
    words = [" or ".join(port.dtypes) or "any type"]
    if port.ranks:
        words.append(f"rank {' or '.join(map(str, port.ranks))}")
    if port.unknown:
        words.append("others not known")
    if port.is_constant:
        words.append(f"always {_text(port.values[0])}" if port.distinct == 1 else "constant")
    return ", ".join(words)


def _attribute_note(attribute: AttributeContract, function: FunctionContract) -> str:
    note = function.reader_of(attribute)
    if attribute.distinct == 1:
        return f"{note}, always {_text(attribute.values[0])}"
    if attribute.default is not None:
        return f"{note}, default {_text(attribute.default)}"
    return note


def _text(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)
