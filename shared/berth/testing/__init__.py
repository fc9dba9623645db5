"""For the tests and `berth demo`: an API server in memory, and a real control plane as processes.
No function imports it.
"""
