"""What users write: Pools, PoolClaims, units and quantities; fields, and the rules for them.
It knows nothing of who holds what, and reads and writes nothing.
"""
