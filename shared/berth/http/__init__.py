"""The edge of every function: calls and events decoded, answers encoded, callers known, bodies bounded.
It knows no claims.
"""
