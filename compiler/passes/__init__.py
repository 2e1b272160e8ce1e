"""The passes of the compiler, one per file."""
