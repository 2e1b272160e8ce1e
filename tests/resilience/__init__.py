"""Runs that are really killed: processes, signals, and what is left on the disk."""
