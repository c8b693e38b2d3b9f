"""The versions of dpl and of what it runs on, for all that stands below the front door."""

__version__ = "0.1.0"


def version_of(package: str) -> str:
    """Return a package's version; "unknown" if none is installed under this name.

    onnxruntime has other names, such as onnxruntime-gpu.
    """
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # not for --help

    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
