"""Backends: each turns a compiled program into a step that one framework runs."""
