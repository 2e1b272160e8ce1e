"""Bench: times one train step in several variants, in turn, and compares what they return."""
