"""What each function does, one file a verb: decode, ask the ledger and the cluster, answer.
No verb calls another, and none keeps state but caches that may be thrown away."""
