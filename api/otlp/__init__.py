"""OpenTelemetry in: GenAI traces become events. All of it is pure: bytes in, envelopes out."""
