"""What several verbs do with the ledger and the cluster together: settle a claim, wake waiters, take stock.
A step answers nobody; the verb that calls it decides what its outcome means."""
