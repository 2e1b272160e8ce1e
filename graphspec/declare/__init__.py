"""The declarations of a spec: frozen, validated by pydantic, one topic per file."""
