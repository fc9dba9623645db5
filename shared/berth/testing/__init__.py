"""Stand-ins for tests and the demonstration: an API server in memory, and a real control plane as processes.
No function imports it.
"""
