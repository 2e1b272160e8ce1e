"""Support code for any framework: its definitions are copied into emitted files as source text."""
