"""Emission of TensorFlow modules: the differences from other frameworks."""
