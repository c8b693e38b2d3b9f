"""The command line: click and nothing else."""
