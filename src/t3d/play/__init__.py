"""Environments in, transitions out. Knows a policy only as a callable."""
