"""Time: durations, schedules, clocks, and how often things fire."""
