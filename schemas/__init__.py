"""The published JSON Schemas of the graph spec and of the plan, as package data; `make schemas` regenerates them."""
