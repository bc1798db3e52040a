"""The audit log: its hash chain, replay of recorded calls, what another policy would have done."""
