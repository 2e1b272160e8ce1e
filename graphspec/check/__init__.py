"""The rules every spec must keep beyond the types of its fields, one topic per file; `validate.py` lists them."""
