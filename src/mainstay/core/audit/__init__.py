"""The audit log: hash chain, deterministic replay, and what another policy would have done."""
