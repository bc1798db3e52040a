"""Keyed calls: claims, lease renewal, retries of the store, replay."""
