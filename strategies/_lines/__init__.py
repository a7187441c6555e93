"""Device code of the families that have a row as lines of 16 bytes: reading, guessing a cut, windows."""
