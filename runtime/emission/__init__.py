"""Emission: from a program to the source text of a module, statement by statement; what frameworks share of it."""
