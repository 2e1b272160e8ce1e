"""Bundled data sets, read through `importlib.resources`; ATTRIBUTION.md says where they come from."""
