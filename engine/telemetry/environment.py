"""Whether the standard variables `OTEL_*` of the environment ask for telemetry, for programs without code."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from toolchart.states.errors import SpecError, format_install

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from toolchart.engine.telemetry.live import Telemetry

_SIGNALS = ("TRACES", "METRICS", "LOGS")


def asks_for_telemetry(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment says where telemetry goes: an exporter or an address, and no switch is off."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = [environment.get(f"OTEL_{signal}_EXPORTER", "") for signal in _SIGNALS]
    addresses = [environment.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT") for signal in _SIGNALS]
    addresses.append(environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"))
    return any(name not in ("", "none") for name in exporters) or any(addresses)


@contextmanager
def open_telemetry(*, meter_provider: MeterProvider | None = None) -> Iterator[Telemetry | None]:
    """The telemetry that the environment asks for; what it has collected is sent when the block ends.

    Args:
        meter_provider: gets the metrics, in place of what the environment names.

    Raises:
        SpecError: a package or an exporter is missing that the environment names.
    """
    exports = asks_for_telemetry()
    if not exports and meter_provider is None:
        yield None
        return
    try:
        from toolchart.engine.telemetry.sdk import build_telemetry
    except ImportError:
        message = "the environment asks for telemetry (OTEL_...), which needs packages that are not installed"
        hint = f"{format_install('otlp')}; or set OTEL_SDK_DISABLED=true"
        raise SpecError(message, hint=hint) from None
    with ExitStack() as closing:
        yield build_telemetry(meter_provider, closing, exports=exports)
