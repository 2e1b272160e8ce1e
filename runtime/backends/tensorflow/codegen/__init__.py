"""Emission of TensorFlow modules: what differs from other frameworks."""
