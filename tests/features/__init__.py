"""What the predecessors do: one module per row of docs/features.md, on every backend there is."""
