"""The configuration of a kube-scheduler that calls Berth, and of the proxy beside it.
It writes texts only, and runs no scheduler with them.
"""
