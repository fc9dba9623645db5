"""The ledger and the cluster brought together: settle, adopt, requeue, retain, publish.
What is decided here is done by the ledger or by the API server; nothing is kept.
"""
