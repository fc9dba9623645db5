"""What a licence server says of its licences, and how much of that is in use by others than our pods.
Pure: it reads texts that others have fetched, and knows neither the ledger nor the cluster."""
