"""Micro-batches: a train step whose batched nodes run once for every part of the batch."""
