"""Kernel languages as compilers to one `Kernel` record."""
