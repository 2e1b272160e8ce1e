"""What the suite leaves out where a framework is missing, and what is too long for every run."""
