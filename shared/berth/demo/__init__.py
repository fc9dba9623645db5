"""`berth demo`: the real functions in a cluster whose other parts are stand-ins, or real as well.
It proves nothing about a cluster in use; the end-to-end tests do."""
