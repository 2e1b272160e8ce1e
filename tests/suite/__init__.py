"""What the suite tells about itself: its time by area, and what it leaves out where a framework is missing."""
