"""How far apart the clocks of processes may be (docs/promises.md#clocks)."""

MOST_APART = 60.0
"""Seconds between the clocks of two processes, or of a process and a server, within which no units are given
back too early or kept for long."""
