"""The algorithm: tensors in, tensors out. Knows no environment and no clock."""
