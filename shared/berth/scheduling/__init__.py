"""What a pod asks, where it fits, why not elsewhere, and how well: pure functions on the ledger's View.
They advise; near the last unit the ledger's reserve decides.
"""
