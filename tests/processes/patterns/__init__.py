"""Nine patterns of training steps on two processes: by hand under three wrappers, and as specs."""
