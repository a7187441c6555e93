"""The tune walk: from workloads to measurements to winners."""
