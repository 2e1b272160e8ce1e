"""Emission: from a program to the source text of a PyTorch module, statement by statement."""
