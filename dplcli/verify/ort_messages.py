"""What onnxruntime says, as one clean line."""

import re

_NOISE = (
    re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : "),
    re.compile(r"Load model from .*? failed:\s*"),
    re.compile(r"Non-zero status code returned while "),
    re.compile(r"Status Message: "),
    re.compile(r"<lambda\(\)>\s*"),
    re.compile(r"/?[\w./\\+-]*onnxruntime[\w./\\+-]*\.(?:cc|h|cpp):\d+\s*"),
    re.compile(r"[\w:~]*onnxruntime::[\w:<>,&*~ ]*\(.*?\)(?: const)?(?: \[with [^]]*\])?[:\s]*"),
)
_LONGEST_MESSAGE = 300
_SHORTAGE = re.compile(
    r"bad_?\s?alloc|allocate memory|out of memory|cannot allocate|allocation fail",
    re.IGNORECASE,
)


def one_line(message: str) -> str:
    """Return what onnxruntime said without its codes, C++ paths and signatures, on one line."""
    text = " ".join(message.split())
    for noise in _NOISE:
        text = noise.sub("", text)
    text = _balanced(" ".join(text.split()))
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"


def _balanced(text: str) -> str:
    """Strip quotes round the whole message, and close one that was cut open."""
    text = text.strip(" ")
    for quote in "'\"":
        if text.startswith(quote) and text.endswith(quote) and text.count(quote) == 2:  # noqa: PLR2004
            text = text.strip(quote)
        if text.count(quote) % 2:
            text = text.removesuffix(quote) if text.endswith(quote) else f"{text}{quote}"
    return text


def tells_of_shortage(message: str) -> bool:
    """Tell a message that says that there was not enough memory."""
    return _SHORTAGE.search(message) is not None
