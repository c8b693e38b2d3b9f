"""Many models at once: which they are, processes that work on them, and what is done already."""
