"""What follows from the declarations of a spec: names, modes, data sets."""
