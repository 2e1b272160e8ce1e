"""The language server: what the compiler knows of a spec, in the editor while it is written."""
