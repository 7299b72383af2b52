"""Pull: runs come back from W&B, whole, into a ledger of their own, which tables, fits and reports read like any."""
