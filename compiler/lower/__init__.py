"""Lowering: one function per kind of op."""
