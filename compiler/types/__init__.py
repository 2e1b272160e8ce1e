"""Shapes and dtypes of values, before anything runs."""
