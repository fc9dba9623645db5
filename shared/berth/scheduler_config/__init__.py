"""What makes a kube-scheduler call Berth: its configuration, and the proxy beside it.
It writes texts only; whether a scheduler runs with them is not seen here.
"""
