"""What stands in for Knative on one machine: processes, a load balancer, events from a watch.
It is for trying Berth out; a cluster has Knative.
"""
