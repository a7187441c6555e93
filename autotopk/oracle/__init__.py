"""What a right result is, and the inputs to try it on."""
