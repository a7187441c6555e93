"""Collective operations of the threads of a block or a cluster, in TileLang, for device code of any family."""
