"""Replicas: real processes beside one process."""
