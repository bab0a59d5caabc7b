"""OpenTelemetry in, pure: bytes become spans, and `projections.traces` makes events of them."""
