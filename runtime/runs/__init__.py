"""Runs: training from data to files, stopped and gone on with, evaluated and judged."""
