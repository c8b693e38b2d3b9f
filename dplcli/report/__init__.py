"""Outcomes as tables, sentences and JSON."""
