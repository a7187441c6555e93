"""What a right answer is, and the inputs to try it on."""
