"""Which settings hold on a node: release, gates, kubelet configuration, capacity. Pure."""
