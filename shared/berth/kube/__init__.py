"""All that is Kubernetes: objects as Berth reads them, requests, and what Berth asks of an API server.
It knows no claims.
"""
