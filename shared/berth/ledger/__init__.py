"""Claims: who holds which units of which pool, in a store that several processes share.
It asks no API server; what is so in the cluster is the caller's to know.
"""
