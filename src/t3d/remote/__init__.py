"""Playing elsewhere: the same collector on Ray."""
