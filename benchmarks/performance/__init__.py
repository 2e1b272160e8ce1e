"""The page of measured figures: benchmarks that are run one by one, a record of their figures, and its tables."""
