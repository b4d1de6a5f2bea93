"""The facts about gates that need other gates: which, and from which release on.

Releases before 1.35 register no dependencies: there, every gate is independent.
"""

from collections.abc import Mapping

DEPENDENCIES: Mapping[str, Mapping[int, tuple[str, ...]]] = {
    "AuthorizeNodeWithSelectors": {35: ("AuthorizeWithSelectors",)},
    "ClusterTrustBundleProjection": {35: ("ClusterTrustBundle",)},
    "CompositePodGroup": {37: ("GenericWorkload", "TopologyAwareWorkloadScheduling")},
    "DeclarativeValidationBeta": {36: ("DeclarativeValidation",)},
    "DeclarativeValidationTakeover": {35: ("DeclarativeValidation",)},
    "DisableAllocatorDualWrite": {35: ("MultiCIDRServiceAllocator",)},
    "DRAAdminAccess": {35: ("DynamicResourceAllocation",)},
    "DRAConsumableCapacity": {35: ("DynamicResourceAllocation",)},
    "DRADerivedAttributes": {37: ("DynamicResourceAllocation",)},
    "DRADeviceBindingConditions": {
        35: ("DRAResourceClaimDeviceStatus", "DynamicResourceAllocation")
    },
    "DRADeviceCompatibilityGroups": {37: ("DRAPartitionableDevices", "DynamicResourceAllocation")},
    "DRADeviceTaintRules": {35: ("DRADeviceTaints",)},
    "DRADeviceTaints": {35: ("DynamicResourceAllocation",)},
    "DRAExtendedResource": {35: ("DynamicResourceAllocation",)},
    "DRAFractionalCapacityRange": {37: ("DRAConsumableCapacity",)},
    "DRAListTypeAttributes": {36: ("DynamicResourceAllocation",)},
    "DRANodeAllocatableResources": {36: ("DynamicResourceAllocation",)},
    "DRAOptionalNodeOperations": {37: ("DynamicResourceAllocation", "NodeDeclaredFeatures")},
    "DRAPartitionableDevices": {35: ("DynamicResourceAllocation",)},
    "DRAPartitionableDevicesType": {
        37: ("DRAPartitionableDevices", "DRAResourcePoolStatus", "DynamicResourceAllocation")
    },
    "DRAPrioritizedList": {35: ("DynamicResourceAllocation",)},
    "DRAResourceClaimGranularStatusAuthorization": {
        36: ("DRAResourceClaimDeviceStatus", "DynamicResourceAllocation")
    },
    "DRAResourcePoolStatus": {36: ("DynamicResourceAllocation",)},
    "DRASchedulerFilterTimeout": {35: ("DynamicResourceAllocation",)},
    "DRAWorkloadResourceClaims": {36: ("DynamicResourceAllocation", "GenericWorkload")},
    "EventedPLEG": {37: ("PLEGOnDemandRelist",)},
    "ExtendWebSocketsToKubelet": {36: ("NodeDeclaredFeatures",)},
    "GangScheduling": {35: ("GenericWorkload",)},
    "GracefulNodeShutdownBasedOnPodPriority": {35: ("GracefulNodeShutdown",)},
    "H2CContainerProbe": {37: ("NodeDeclaredFeatures",)},
    "ImageVolumeWithDigest": {36: ("ImageVolume",)},
    "InPlacePodLevelResourcesVerticalScaling": {
        35: ("InPlacePodVerticalScaling", "NodeDeclaredFeatures", "PodLevelResources")
    },
    "InPlacePodVerticalScalingAllocatedStatus": {35: ("InPlacePodVerticalScaling",)},
    "InPlacePodVerticalScalingExclusiveCPUs": {35: ("InPlacePodVerticalScaling",)},
    "InPlacePodVerticalScalingExclusiveMemory": {
        35: ("InPlacePodVerticalScaling", "MemoryManager"),
        36: ("InPlacePodVerticalScaling",),
    },
    "InPlacePodVerticalScalingInitContainers": {
        36: ("InPlacePodVerticalScaling", "NodeDeclaredFeatures")
    },
    "InPlacePodVerticalScalingMemoryBackedVolumes": {
        37: ("InPlacePodVerticalScaling", "NodeDeclaredFeatures")
    },
    "InPlacePodVerticalScalingSchedulerPreemption": {37: ("InPlacePodVerticalScaling",)},
    "KubeletAllocatedPodsEndpoint": {37: ("InPlacePodVerticalScaling",)},
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": {35: ("MatchLabelKeysInPodTopologySpread",)},
    "NodeControllerLeaseCircuitBreaker": {37: ("AtomicFIFO",)},
    "PodCertificateRequest": {35: ("AuthorizeNodeWithSelectors",), 37: ()},
    "PodGroupPreemptionPolicy": {37: ("GenericWorkload",)},
    "PodLevelResourceManagers": {36: ("PodLevelResources",)},
    "PodLevelResourcesFixDefaulting": {37: ("PodLevelResources",)},
    "PodLevelResourcesFixKubeletQOSClass": {37: ("PodLevelResources",)},
    "PodLifecycleSleepActionAllowZero": {35: ("PodLifecycleSleepAction",)},
    "ProcMountType": {35: ("UserNamespacesSupport",)},
    "ResourceHealthStatus": {35: ("DynamicResourceAllocation",)},
    "ResourceHealthStatusMessage": {36: ("ResourceHealthStatus",)},
    "RestartAllContainersOnContainerExits": {35: ("ContainerRestartRules", "NodeDeclaredFeatures")},
    "ServiceAccountTokenNodeBinding": {35: ("ServiceAccountTokenNodeBindingValidation",)},
    "StaleControllerConsistencyDaemonSet": {36: ("AtomicFIFO",)},
    "StaleControllerConsistencyHPA": {37: ("AtomicFIFO",)},
    "StaleControllerConsistencyJob": {36: ("AtomicFIFO",)},
    "StaleControllerConsistencyReplicaSet": {36: ("AtomicFIFO",)},
    "StaleControllerConsistencyStatefulSet": {36: ("AtomicFIFO",)},
    "StorageVersionAPI": {35: ("APIServerIdentity",)},
    "StructuredAuthenticationConfigurationEgressSelector": {
        35: ("StructuredAuthenticationConfiguration",),
        37: (),
    },
    "StructuredAuthenticationConfigurationJWKSMetrics": {
        35: ("StructuredAuthenticationConfiguration",),
        37: (),
    },
    "TopologyAwareWorkloadScheduling": {36: ("GenericWorkload",)},
    "UnknownVersionInteroperabilityProxy": {35: ("APIServerIdentity",)},
    "UserNamespacesHostNetworkSupport": {
        35: ("UserNamespacesSupport",),
        36: ("NodeDeclaredFeatures", "UserNamespacesSupport"),
    },
    "WindowsCPUAndMemoryAffinity": {35: ("MemoryManager",), 36: ()},
    "WindowsGracefulNodeShutdown": {35: ("GracefulNodeShutdown",)},
    "WorkloadAwarePreemption": {36: ("GangScheduling",)},
    "WorkloadWithJob": {36: ("GenericWorkload",)},
}
