"""Metrics and traces: what the application switches on, in one line, on the driver.

Without the extra `telemetry` nothing here can be switched on, and nothing else changes. OpenTelemetry is
imported only when it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.observability import listen
from yt_exactly_once.spark.monitor import Monitor

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from pyspark.sql import SparkSession

__all__ = ["Telemetry", "enable_lineage", "enable_telemetry", "serve_metrics"]

SCOPE = "yt_exactly_once"
"""Name of the instrumentation scope."""

DEFAULT_PORT = 9464
"""Port of the end point for Prometheus, as OpenTelemetry has it."""


class Telemetry(ExitStack):
    """What was switched on; also a context manager. `close` switches it off; closing twice does nothing.

    Attributes:
        port: of the end point for Prometheus; 0 without one.
    """

    port = 0


def enable_telemetry(
    spark: SparkSession | None = None,
    *,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
) -> Telemetry:
    """Report metrics and traces of all queries of this process through OpenTelemetry.

    Call it once, on the driver, before `register_source(spark)` and before queries are defined.

    Args:
        spark: adds what the source, the tasks and Spark tell. Without it only sinks report.
        meter_provider: gets the metrics; default: the global one.
        tracer_provider: gets the traces; default: the global one.

    Returns:
        Closes it.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """
    with _extra():
        from opentelemetry import metrics, trace  # noqa: PLC0415

        from yt_exactly_once.telemetry.recorder import Recorder  # noqa: PLC0415
        from yt_exactly_once.telemetry.tracing import Tracing  # noqa: PLC0415

    with Telemetry() as opened:
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        opened.callback(listen(Recorder(meter)))
        opened.callback(listen(Tracing(tracer)))
        if spark is not None:
            opened.callback(Monitor(spark).close)
        return opened.pop_all()


def serve_metrics(
    spark: SparkSession | None = None, *, port: int = DEFAULT_PORT, host: str = "localhost"
) -> Telemetry:
    """Serve the metrics of all queries of this process to Prometheus, at `http://host:port/metrics`.

    Call it once, on the driver, before `register_source(spark)` and before queries are defined. It has
    providers of its own, so it changes nothing of an application that uses OpenTelemetry already.

    Args:
        spark: adds what the source, the tasks and Spark tell. Without it only sinks report.
        port: of the end point; 0 takes a free one.
        host: address to listen on. Metrics name queries, tables and queues. There is no password.

    Returns:
        Closes it, and knows the port.

    Raises:
        ConfigError: OpenTelemetry is not installed, or the address is taken.
    """
    with _extra():
        from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.trace import NoOpTracerProvider  # noqa: PLC0415
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415

    registry = CollectorRegistry()
    with Telemetry() as opened:
        try:
            server, thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigError(
                f"Metrics cannot be served at {host}:{port}: {error.strerror}",
                remedy="Pass a free port, and an address of this machine as host",
            ) from error
        opened.callback(thread.join, 5)
        opened.callback(server.server_close)
        opened.callback(server.shutdown)
        provider = MeterProvider([PrometheusMetricReader(registry=registry)])
        opened.callback(provider.shutdown)
        opened.enter_context(
            enable_telemetry(spark, meter_provider=provider, tracer_provider=NoOpTracerProvider())
        )
        serving = opened.pop_all()
        serving.port = server.server_port
        return serving


def enable_lineage(
    spark: SparkSession | None = None,
    *,
    namespace: str,
    cluster: str,
    kafka: str = "",
    client: OpenLineageClient | None = None,
) -> Telemetry:
    """Report what each batch of this process reads and writes to OpenLineage.

    Call it once, on the driver, before `register_source(spark)` and before queries are defined. A batch never
    waits for it, and never fails by it: the event `lineage.failed` names the first failure. Events that the
    client cannot send are lost.

    Args:
        spark: adds the names of queries, and the batches of the format `yt`. Without it a job has the path of
            its first target as name.
        namespace: of the jobs.
        cluster: name of the cluster of the targets.
        kafka: `host:port` of the broker, if topics are read.
        client: sends the events; default: by the variables and the file that OpenLineage knows.

    Returns:
        Closes it, and sends what waits.

    Raises:
        ConfigError: the extra `lineage` is not installed.
    """
    with _extra("lineage"):
        from openlineage.client import OpenLineageClient  # noqa: PLC0415

        from yt_exactly_once.telemetry.lineage import Lineage  # noqa: PLC0415

    lineage = Lineage(client or OpenLineageClient(), namespace, cluster, kafka)
    with Telemetry() as opened:
        opened.callback(lineage.close)
        opened.callback(listen(lineage))
        if spark is not None:
            opened.callback(Monitor(spark).close)
        return opened.pop_all()


@contextmanager
def _extra(name: str = "telemetry") -> Iterator[None]:
    """Import what an extra brings; raise `ConfigError` if it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{name.capitalize()} needs {error.name}, which is not installed",
            remedy=f"Install the package with its extra '{name}' on the driver",
        ) from error
