"""What a process says of its work without being asked: lines of its log, and traces.
It decides nothing, and no call waits for it."""
