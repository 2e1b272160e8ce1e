"""Records what a PyTorch program does while it runs: who reads and writes what, and at which lines."""
