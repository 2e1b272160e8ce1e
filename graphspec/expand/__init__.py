"""What makes one flat document of one with blocks."""
