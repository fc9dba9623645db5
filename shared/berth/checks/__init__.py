"""What `berth check` looks for: misconfigurations of a cluster, a scheduler and a store, a file each noun.
It changes nothing, and says of what it could not look at why."""
