"""The HTTP edge of every function: calls and events decoded, answers encoded, callers authenticated, bodies
limited. It knows no claims.
"""
