"""Webhooks of sinks and publishers: signature, the addresses they may reach, one POST in time."""
