"""Idempotency records: the reducer (claim, lease, epoch), the flow of a keyed call, fast replay."""
