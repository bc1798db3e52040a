"""One call: sync and async drivers of core/retry/call.py, wrappers, blocks, emitting events."""
