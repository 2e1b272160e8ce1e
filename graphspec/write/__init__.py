"""A spec as a document again, and the JSON Schema of all specs."""
