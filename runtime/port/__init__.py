"""Write the spec of a training loop that somebody wrote by hand, and compare the two."""
