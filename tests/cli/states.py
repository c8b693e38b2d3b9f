"""What a folder holds, so that a test can say: nothing was left behind."""

from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below *folder* with its bytes; hidden ones count, too."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
