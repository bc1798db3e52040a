"""Keyed calls, driven: claims, lease renewal, retries of the store, replay."""
