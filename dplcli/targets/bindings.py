"""Contracts as source text: a header for kernels in C or C++, abstract classes for Python."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from dplcli.ir.types import DTYPE_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


@dataclass(frozen=True)
class _Field:
    """An input, output or attribute as the templates see it.

    Attributes:
        name: Its name in the function.
        word: Its identifier as a member or parameter.
        macro: Its identifier as an enumerator or macro.
        type: Its type in the language.
        note: What is known of it, for a comment.
        is_given: Whether every call gives it.
        flag: Identifier of what says whether a call gives it, where not every call does.
    """

    name: str
    word: str
    macro: str
    type: str
    note: str
    is_given: bool = True
    flag: str = ""


@dataclass(frozen=True)
class _Entry:
    """A function as the templates see it.

    Attributes:
        contract: What is to be said.
        stem: Its identifier: of the C function, or of the class.
        macro: What its macros begin with.
        inputs: Its inputs.
        outputs: Its outputs.
        attributes: Its attributes.
        macros: Further macros: name to text.
    """

    contract: FunctionContract
    stem: str
    macro: str
    inputs: Sequence[_Field]
    outputs: Sequence[_Field]
    attributes: Sequence[_Field]
    macros: dict[str, str]


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


# -- C ---------------------------------------------------------------------------------------------


def _c_entry(function: FunctionContract, stem: str, names: Identifiers) -> _Entry:
    name = names.take(f"dpl_{stem}")
    macro = name.upper()
    texts = {
        "DOMAIN": function.domain,
        "RULE": function.rule,
        "NAME": function.name,
        "BODY": " ".join(node.qualified_op for node in function.body),
    }
    return _Entry(
        function,
        name,
        macro,
        _c_ports(function.inputs, f"{macro}_INPUT_", names),
        _c_ports(function.outputs, f"{macro}_OUTPUT_", names),
        _c_attributes(function, f"{macro}_ATTRIBUTE_", names),
        {names.take(f"{macro}_{key}"): text for key, text in texts.items()},
    )


def _c_ports(ports: Iterable[PortContract], prefix: str, names: Identifiers) -> list[_Field]:
    return [
        _Field(port.name, "", names.take(prefix + port.name.upper()), "", _port_note(port))
        for port in ports
    ]


def _c_attributes(function: FunctionContract, prefix: str, names: Identifiers) -> list[_Field]:
    scope = Identifiers(_C_WORDS.split())
    words = [scope.take(attribute.name) for attribute in function.attributes]
    return [
        _Field(
            attribute.name,
            word,
            names.take(prefix + attribute.name.upper()),
            _C_TYPES.get(attribute.kind, "const void *"),
            _attribute_note(function, attribute),
            attribute.is_given,
            "" if attribute.is_given else scope.take(f"has_{word}"),
        )
        for attribute, word in zip(function.attributes, words, strict=True)
    ]


# -- Python ----------------------------------------------------------------------------------------


def _python_entry(function: FunctionContract, name: str) -> _Entry:
    scope = Identifiers(_PYTHON_WORDS)
    inputs = [
        _Field(port.name, scope.take(port.name), "", _numpy(port), _port_note(port))
        for port in function.inputs
    ]
    attributes = [
        _Field(
            attribute.name,
            scope.take(attribute.name),
            "",
            _PYTHON_TYPES.get(attribute.kind, "object"),
            _attribute_note(function, attribute),
            attribute.is_given,
        )
        for attribute in function.attributes
    ]
    outputs = [
        _Field(port.name, "", "", _numpy(port), _port_note(port)) for port in function.outputs
    ]
    return _Entry(function, name, "", inputs, outputs, attributes, {})


def _numpy(port: PortContract) -> str:
    types = [_NUMPY_TYPES.get(dtype, "np.generic") for dtype in port.dtypes]
    if not types or port.unknown or "np.generic" in types:
        return "npt.NDArray[np.generic]"
    return f"npt.NDArray[{' | '.join(types)}]"


# -- notes -----------------------------------------------------------------------------------------


def _port_note(port: PortContract) -> str:
    words = [" or ".join(port.dtypes) or "any type"]
    if port.ranks:
        words.append(f"rank {' or '.join(map(str, port.ranks))}")
    if port.unknown:
        words.append("others not known")
    if port.is_constant:
        words.append(f"always {_text(port.values[0])}" if port.distinct == 1 else "constant")
    return ", ".join(words)


def _attribute_note(function: FunctionContract, attribute: AttributeContract) -> str:
    note = f"{function.body[attribute.node].op_type}.{attribute.reads}"
    if attribute.distinct == 1:
        return f"{note}, always {_text(attribute.values[0])}"
    if attribute.default is not None:
        return f"{note}, default {_text(attribute.default)}"
    return note


def _text(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)
