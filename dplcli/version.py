"""The version of dpl, where all that stands below the front door may read it."""

__version__ = "0.1.0"
