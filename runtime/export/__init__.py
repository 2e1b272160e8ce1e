"""Exported functions and files."""
