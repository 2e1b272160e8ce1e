"""The plan as a picture and as a page."""
