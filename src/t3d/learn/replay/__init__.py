"""Step 1: the replay memory, and how batches are drawn from it."""
