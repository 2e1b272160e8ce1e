"""What holding a step's state has in common on every framework: what it consists of, reading it, putting it back."""
