"""Steps 4 to 15 once more, compiled for the CPU."""
