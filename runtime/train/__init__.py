"""A run: the loop, its folder, its logs, and how it resumes."""
