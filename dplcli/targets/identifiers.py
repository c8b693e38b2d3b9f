"""Names of functions, values and attributes as identifiers of C, C++ and Python."""

from __future__ import annotations

import keyword
import re

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
_PYTHON_WORDS = frozenset([*keyword.kwlist, "self", "np", "npt"])
_OTHER = re.compile(r"[^0-9A-Za-z_]")


class Identifiers:
    """Identifiers of one scope; no two are alike, whatever their case.

    Args:
        reserved: What must not be used.
    """

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        """Start without names but the reserved ones."""
        self._taken = {word.lower() for word in reserved}

    def take(self, name: str) -> str:
        """Return an identifier for *name* that is not taken yet."""
        wanted = identifier(name)
        found, count = wanted, 0
        while found.lower() in self._taken:
            count += 1
            found = f"{wanted}_{count}"
        self._taken.add(found.lower())
        return found


def identifier(name: str) -> str:
    """Return *name* with what identifiers cannot have replaced by underscores."""
    text = _OTHER.sub("_", name)
    return text if text and not text[0].isdigit() else f"n{text}"


def c_scope() -> Identifiers:
    """Return a scope for members or parameters that are valid in C and in C++."""
    return Identifiers(frozenset(_C_WORDS.split()))


def python_scope() -> Identifiers:
    """Return a scope for the parameters of a Python function."""
    return Identifiers(_PYTHON_WORDS)


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
