"""The demonstration: the real functions, with the rest of a cluster played around them.
It proves nothing about a real cluster; that is what the end-to-end tests are for."""
