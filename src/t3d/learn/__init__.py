"""Learning: tensors in, tensors out. It knows no environment."""
