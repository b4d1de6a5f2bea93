"""NUMA: which memory nodes a pod gets, as the kubelet's Topology and Memory Manager decide it.

Pure: machines, pods, kubelet settings and state files come in as values; admissions, refusals and
new state go out as values. Nothing here touches files, clocks or processes.

    masks → subsets → offers → merge → topology        which nodes would do, and which is best
    memory → state → allocation, pool → manager        who holds what, what an admission changes
    reserved, checkpoint, restart                      what the kubelet is told, what it remembers
    room                                               what would fit
"""
