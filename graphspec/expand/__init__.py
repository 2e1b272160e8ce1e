"""What makes one flat document of one with includes and blocks."""
