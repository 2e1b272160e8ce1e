"""Splitting the batch: the terms of losses, what they count, and forwards in micro-batches."""
