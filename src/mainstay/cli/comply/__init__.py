"""`mainstay comply`: checks the telemetry, ledgers and audit log of pipeline runs, for CI."""
