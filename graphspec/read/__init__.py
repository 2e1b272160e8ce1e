"""From text to plain data that knows where every key and value stands."""
