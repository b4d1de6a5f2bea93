"""NUMA: which memory nodes a pod gets, as the kubelet's Topology and Memory Manager decide it.

Pure: machines, pods, kubelet settings and state files come in as values; admissions, refusals and
new state go out as values. Nothing here touches files, clocks or processes.

    masks → hints → topology_manager                   which nodes suffice, and which are best
    requests, machine_state → allocation → admission   what pods request, what is allocated to them
    manager, restart, running_pods                     a kubelet from start to restart
    reserved_memory, checkpoint…                       its reservations, and its state file
    largest_fit, pod_sizes → advice                    what would fit
    machines, refusal_text                             machines as input, refusals in words
"""
