"""What a cluster and its nodes decide about pods: limit ranges, quota, resize, autoscaling,
scheduler fit, admission by a kubelet, also under pressure, preemption and eviction.

Charter: pure rules on values. No files, clocks, sockets or processes; time and what was observed
arrive as arguments, and every verdict carries the numbers it rests on.
"""
