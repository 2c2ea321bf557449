"""One training run and its folder."""
