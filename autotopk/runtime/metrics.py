"""What `insight` counts, for Prometheus: its own client is asked at every scrape, and keeps nothing here."""

from collections.abc import Iterator
from typing import Any

from autotopk.runtime.insight import stats


class Collector:
    """Counters of this process as prometheus_client collects them."""

    def collect(self) -> Iterator[Any]:
        """The families of metrics."""
        from prometheus_client.core import CounterMetricFamily

        found = stats()
        labels = ["operation", "step", "strategy"]
        calls = CounterMetricFamily("autotopk_calls", "Calls while they are watched.", labels=labels)
        host = CounterMetricFamily("autotopk_host_seconds", "Time of the host in these calls.", labels=labels)
        for one in found.calls:
            place = [one.operation, one.step, one.strategy]
            calls.add_metric(place, one.count)
            host.add_metric(place, one.host_us / 1e6)
        yield from (calls, host)
        for name, told in (
            ("plans", "Layouts that were met for the first time."),
            ("misses", "Of these, those without a winner of their own."),
            ("builds", "Kernels compiled beside calls."),
            ("failed_builds", "Kernels that could not be compiled."),
        ):
            yield CounterMetricFamily(f"autotopk_{name}", told, value=getattr(found, name))
        by_torch = CounterMetricFamily("autotopk_torch", "Watched calls that torch.topk answered.", labels=["reason"])
        for reason, count in found.torch.items():
            by_torch.add_metric([reason], count)
        yield by_torch
        yield CounterMetricFamily(
            "autotopk_left_out", "Candidates that failed and were left out.", value=sum(found.left_out.values())
        )


def register(registry: Any = None) -> Collector:
    """Add the counters to a registry of prometheus_client, by default its own; the extra `metrics` installs it.

    Raises ImportError where prometheus_client is not installed, ValueError where they are registered already.
    """
    from prometheus_client import REGISTRY

    collector = Collector()
    (REGISTRY if registry is None else registry).register(collector)
    return collector
