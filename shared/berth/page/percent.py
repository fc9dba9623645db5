"""How full a bar is.
Pure."""


def share(part: int, whole: int) -> int:
    """Return the part in percent, 0 to 100: only nothing is 0, and only all, or more, is 100."""
    if part <= 0:
        return 0
    if part >= whole:
        return 100
    return min(99, max(1, round(100 * part / whole)))
