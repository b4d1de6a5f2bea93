"""The fields of a KubeletConfiguration: the kind of value each takes, and since which release.

Kinds are spelled as in Go, whose reading they stand for: of a plain kind the zero value counts as
not set, of a pointer (`*`), a list or a map only null does. `object` is not looked into.
No release has removed a field.
"""

from collections.abc import Mapping

_NAMES: Mapping[str, str] = {
    "*Duration": "containerLogMonitorInterval cpuCFSQuotaPeriod",
    "Duration": """
        cpuManagerReconcilePeriod evictionPressureTransitionPeriod fileCheckFrequency
        httpCheckFrequency imageMaximumGCAge imageMinimumGCAge nodeStatusReportFrequency
        nodeStatusUpdateFrequency runtimeRequestTimeout shutdownGracePeriod
        shutdownGracePeriodCriticalPods streamingConnectionIdleTimeout syncFrequency
        volumeStatsAggPeriod
    """,
    "MemorySwapConfiguration": "memorySwap",
    "[]MemoryReservation": "reservedMemory",
    "[]int32": "tlsCurvePreferences",
    "[]object": "registerWithTaints shutdownGracePeriodByPodPriority",
    "[]string": """
        allowedUnsafeSysctls clusterDNS enforceNodeAllocatable
        preloadedImagesVerificationAllowlist tlsCipherSuites
    """,
    "*bool": """
        cgroupsPerQOS cpuCFSQuota enableControllerAttachDetach enableDebugFlagsHandler
        enableDebuggingHandlers enableProfilingHandler enableServer
        enableSystemLogHandler enableSystemLogQuery failCgroupV1 failSwapOn
        localStorageCapacityIsolation makeIPTablesUtilChains
        mergeDefaultEvictionSettings registerNode seccompDefault serializeImagePulls
        singleProcessOOMKill
    """,
    "bool": """
        enableContentionProfiling kernelMemcgNotification protectKernelDefaults
        rotateCertificates runOnce serverTLSBootstrap
    """,
    "*float64": "memoryThrottlingFactor",
    "*int32": """
        containerLogMaxFiles containerLogMaxWorkers eventRecordQPS healthzPort
        imageGCHighThresholdPercent imageGCLowThresholdPercent iptablesDropBit
        iptablesMasqueradeBit kubeAPIQPS maxParallelImagePulls nodeStatusMaxImages
        oomScoreAdj registryPullQPS
    """,
    "int32": """
        eventBurst evictionMaxPodGracePeriod kubeAPIBurst maxPods
        nodeLeaseDurationSeconds podsPerCore port readOnlyPort registryBurst
    """,
    "*int64": "podPidsLimit",
    "int64": "maxOpenFiles",
    "map[string][]string": "staticPodURLHeader",
    "map[string]bool": "featureGates",
    "map[string]string": """
        cpuManagerPolicyOptions defaultPodSysctls evictionHard evictionMinimumReclaim
        evictionSoft evictionSoftGracePeriod kubeReserved qosReserved systemReserved
        topologyManagerPolicyOptions
    """,
    "object": """
        authentication authorization crashLoopBackOff logging tracing userNamespaces
    """,
    "*string": "resolvConf",
    "string": """
        address cgroupDriver cgroupRoot clusterDomain
        configMapAndSecretChangeDetectionStrategy containerLogMaxSize
        containerRuntimeEndpoint contentType cpuManagerPolicy hairpinMode
        healthzBindAddress imagePullCredentialsVerificationPolicy imageServiceEndpoint
        kubeletCgroups kubeReservedCgroup memoryManagerPolicy memoryReservationPolicy
        podCIDR podLogsDir providerID reservedSystemCPUs showHiddenMetricsForVersion
        staticPodPath staticPodURL systemCgroups systemReservedCgroup tlsCertFile
        tlsMinVersion tlsPrivateKeyFile topologyManagerPolicy topologyManagerScope
        volumePluginDir
    """,
}

KINDS: Mapping[str, str] = {name: kind for kind, names in _NAMES.items() for name in names.split()}

SINCE: Mapping[str, int] = {
    "registerNode": 23,
    "registerWithTaints": 23,
    "shutdownGracePeriodByPodPriority": 23,
    "localStorageCapacityIsolation": 25,
    "tracing": 25,
    "topologyManagerPolicyOptions": 26,
    "containerRuntimeEndpoint": 27,
    "enableSystemLogQuery": 27,
    "imageServiceEndpoint": 27,
    "maxParallelImagePulls": 27,
    "imageMaximumGCAge": 29,
    "containerLogMaxWorkers": 30,
    "containerLogMonitorInterval": 30,
    "podLogsDir": 30,
    "failCgroupV1": 31,
    "crashLoopBackOff": 32,
    "singleProcessOOMKill": 32,
    "imagePullCredentialsVerificationPolicy": 33,
    "mergeDefaultEvictionSettings": 33,
    "preloadedImagesVerificationAllowlist": 33,
    "userNamespaces": 33,
    "memoryReservationPolicy": 36,
    "tlsCurvePreferences": 36,
    "defaultPodSysctls": 37,
}
"""Fields that 1.22 does not have."""
