"""What people look at. Reads run folders; only the command line imports it."""
