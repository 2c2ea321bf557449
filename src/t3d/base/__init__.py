"""Helpers that know nothing of RL: errors, files, numbers, random streams, this machine."""
