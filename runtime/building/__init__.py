"""What building a step has in common on every framework: loading, telling errors, users' classes, learning."""
