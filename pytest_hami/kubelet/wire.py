"""The messages of the device-plugin API, built from a table, so that no generated code is needed.

Source: Kubernetes 1.36, k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = VERSION = "v1beta1"
REGISTER = f"/{PACKAGE}.Registration/Register"

# The fields of each message: name, number, type. A type is a scalar, a message, ``map`` (text to text), or one in
# brackets for a list of it.
MESSAGES: Mapping[str, tuple[tuple[str, int, str], ...]] = {
    "Empty": (),
    "DevicePluginOptions": (("pre_start_required", 1, "bool"), ("get_preferred_allocation_available", 2, "bool")),
    "RegisterRequest": (
        ("version", 1, "string"), ("endpoint", 2, "string"), ("resource_name", 3, "string"),
        ("options", 4, "DevicePluginOptions"),
    ),
    "NUMANode": (("ID", 1, "int64"),),
    "TopologyInfo": (("nodes", 1, "[NUMANode]"),),
    "Device": (("ID", 1, "string"), ("health", 2, "string"), ("topology", 3, "TopologyInfo")),
    "ListAndWatchResponse": (("devices", 1, "[Device]"),),
    "PreStartContainerRequest": (("devices_ids", 1, "[string]"),),
    "PreStartContainerResponse": (),
    "ContainerPreferredAllocationRequest": (
        ("available_deviceIDs", 1, "[string]"), ("must_include_deviceIDs", 2, "[string]"), ("allocation_size", 3, "int32"),
    ),
    "PreferredAllocationRequest": (("container_requests", 1, "[ContainerPreferredAllocationRequest]"),),
    "ContainerPreferredAllocationResponse": (("deviceIDs", 1, "[string]"),),
    "PreferredAllocationResponse": (("container_responses", 1, "[ContainerPreferredAllocationResponse]"),),
    "ContainerAllocateRequest": (("devices_ids", 1, "[string]"),),
    "AllocateRequest": (("container_requests", 1, "[ContainerAllocateRequest]"),),
    "Mount": (("container_path", 1, "string"), ("host_path", 2, "string"), ("read_only", 3, "bool")),
    "DeviceSpec": (("container_path", 1, "string"), ("host_path", 2, "string"), ("permissions", 3, "string")),
    "CDIDevice": (("name", 1, "string"),),
    "ContainerAllocateResponse": (
        ("envs", 1, "map"), ("mounts", 2, "[Mount]"), ("devices", 3, "[DeviceSpec]"), ("annotations", 4, "map"),
        ("cdi_devices", 5, "[CDIDevice]"),
    ),
    "AllocateResponse": (("container_responses", 1, "[ContainerAllocateResponse]"),),
}  # fmt: skip

# The calls of a device plugin: request, response, and whether it answers with a stream.
CALLS: Mapping[str, tuple[str, str, bool]] = {
    "ListAndWatch": ("Empty", "ListAndWatchResponse", True),
    "GetPreferredAllocation": ("PreferredAllocationRequest", "PreferredAllocationResponse", False),
    "Allocate": ("AllocateRequest", "AllocateResponse", False),
    "PreStartContainer": ("PreStartContainerRequest", "PreStartContainerResponse", False),
}

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING, "bool": _Field.TYPE_BOOL, "int32": _Field.TYPE_INT32, "int64": _Field.TYPE_INT64,
}  # fmt: skip


@cache
def message(name: str) -> Any:
    """Return the class of a message."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def path(call: str) -> str:
    """Return the gRPC path of a call of a device plugin."""
    return f"/{PACKAGE}.DevicePlugin/{call}"


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="deviceplugin/v1beta1/api.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        described = file.message_type.add(name=name)
        for field, number, kind in fields:
            added = described.field.add(name=field, number=number, label=_Field.LABEL_OPTIONAL)
            if kind == "map":
                entry = described.nested_type.add(name=f"{field.title()}Entry")
                entry.options.map_entry = True
                for part, position in (("key", 1), ("value", 2)):
                    entry.field.add(name=part, number=position, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
                kind = f"[{name}.{entry.name}]"  # noqa: PLW2901
            if kind.startswith("["):
                added.label = _Field.LABEL_REPEATED
            of = kind.strip("[]")
            if of in _SCALARS:
                added.type = _SCALARS[of]
            else:
                added.type, added.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool
