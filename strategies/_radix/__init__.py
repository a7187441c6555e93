"""Radix selection in TileLang: what the families of kernels for long rows are made of; device code is in `device`."""
