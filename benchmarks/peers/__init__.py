"""Training steps in several libraries, on the same models and data, in one interleaved run."""
