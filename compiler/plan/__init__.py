"""The plan in every form that a reader or a tool may want."""
