"""One call, driven: the sync and async loops over core/retry/call.py, wrappers, blocks, events."""
