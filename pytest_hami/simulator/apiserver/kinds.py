"""The resources that the simulated API server knows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A served resource: group (empty = core), version, plural and singular name, kind."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    built_in: bool = True

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage(self) -> str:
        """The name of the store: core and events.k8s.io events are one."""
        return "events" if self.plural == "events" else f"{self.group}/{self.plural}"


def _core(plural: str, kind: str, namespaced: bool = True, *short: str) -> Kind:
    return Kind("", "v1", plural, kind, namespaced, short)


BUILT_IN: tuple[Kind, ...] = (
    _core("pods", "Pod", True, "po"),
    _core("nodes", "Node", False, "no"),
    _core("namespaces", "Namespace", False, "ns"),
    _core("events", "Event", True, "ev"),
    _core("configmaps", "ConfigMap", True, "cm"),
    _core("secrets", "Secret"),
    _core("services", "Service", True, "svc"),
    _core("endpoints", "Endpoints", True, "ep"),
    _core("serviceaccounts", "ServiceAccount", True, "sa"),
    _core("resourcequotas", "ResourceQuota", True, "quota"),
    _core("limitranges", "LimitRange", True, "limits"),
    _core("persistentvolumes", "PersistentVolume", False, "pv"),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", True, "pvc"),
    _core("replicationcontrollers", "ReplicationController", True, "rc"),
    _core("podtemplates", "PodTemplate"),
    Kind("events.k8s.io", "v1", "events", "Event", True, ("ev",)),
    Kind("apps", "v1", "deployments", "Deployment", True, ("deploy",)),
    Kind("apps", "v1", "replicasets", "ReplicaSet", True, ("rs",)),
    Kind("apps", "v1", "daemonsets", "DaemonSet", True, ("ds",)),
    Kind("apps", "v1", "statefulsets", "StatefulSet", True, ("sts",)),
    Kind("batch", "v1", "jobs", "Job"),
    Kind("batch", "v1", "cronjobs", "CronJob", True, ("cj",)),
    Kind("coordination.k8s.io", "v1", "leases", "Lease"),
    Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False),
    Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, ("pc",)),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, ("pdb",)),
    Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    Kind("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
    Kind("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, ("sc",)),
    Kind("storage.k8s.io", "v1", "csinodes", "CSINode", False),
    Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False),
    Kind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"),
    Kind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False),
    Kind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False),
    Kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False),
    Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
    Kind("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    Kind("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False),
    Kind("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False),
    Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, ("crd", "crds")),
)  # fmt: skip


class Registry:
    """The served resources, built in and from CustomResourceDefinitions."""

    def __init__(self) -> None:
        self._kinds = {(k.group, k.version, k.plural): k for k in BUILT_IN}

    def add(self, definition: dict[str, object]) -> None:
        """Serve the versions of a CustomResourceDefinition."""
        spec = definition["spec"]
        assert isinstance(spec, dict)
        for version in spec["versions"]:
            kind = Kind(
                spec["group"], version["name"], spec["names"]["plural"], spec["names"]["kind"],
                spec.get("scope") == "Namespaced", tuple(spec["names"].get("shortNames") or ()), built_in=False,
            )  # fmt: skip
            self._kinds[(kind.group, kind.version, kind.plural)] = kind

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return a served resource, None when it is unknown."""
        return self._kinds.get((group, version, plural))

    def of(self, group: str, version: str) -> list[Kind]:
        """Return the resources of a group version."""
        return [kind for kind in self._kinds.values() if (kind.group, kind.version) == (group, version)]

    def groups(self) -> dict[str, list[str]]:
        """Return the versions of each group outside core."""
        found: dict[str, list[str]] = {}
        for kind in self._kinds.values():
            if kind.group and kind.version not in found.setdefault(kind.group, []):
                found[kind.group].append(kind.version)
        return found
