"""Layers around a call: fallback, hedging, bulkhead, and the order in which they stack."""
