"""Device code of the radix families. Compiled kernels are named for the bytes of these files: no host code here."""
