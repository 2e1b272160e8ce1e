"""The PyTorch backend: emits a step as readable PyTorch source, and runs that same source."""
