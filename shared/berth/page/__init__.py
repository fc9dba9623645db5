"""The status page: templates, style and a few lines of script, rendered from a Snapshot.
It asks no store and no cluster, and takes nothing from another host."""
