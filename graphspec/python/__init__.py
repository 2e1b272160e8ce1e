"""Specs from Python: a graph records what is declared and where, and makes a document of it."""
