"""The run walk: from a tensor to a plan to a launch."""
