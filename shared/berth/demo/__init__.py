"""The demonstration: the real functions, with the rest of a cluster played around them, or real as well.
It proves nothing about a cluster in use; that is what the end-to-end tests are for."""
