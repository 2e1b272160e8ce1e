"""From a compiled program to source."""
