"""``python -m dplcli`` and the console script ``dpl``."""

from dplcli.cli.main import main

if __name__ == "__main__":
    main()
