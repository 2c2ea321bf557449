"""Many runs, and what they tell."""
