"""What is decided, as pure functions: a pod's demand, a node's domain, what fits, why not, scores.
No I/O here, no clock, and no state: the same input gives the same answer."""
