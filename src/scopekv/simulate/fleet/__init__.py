"""A fleet in virtual time: recorded requests through the core that serves real ones.

`workload` (requests and who sends them) > `fleet` (arrivals, instances, routes) > `figures`.
"""
