"""DynamoDB's own time, learnt from its answers: all processes stamp their commits by it."""

from berth.server_clock import ServerClock, uptime

__all__ = ["ServerClock", "uptime"]
