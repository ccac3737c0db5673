"""A device plugin of a few lines: what kubelet's side is tested against.

As a program it runs in a lane, with the paths and variables of HAMi's.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from pytest_hami.kubelet import wire

DIRECTORY = Path("/var/lib/kubelet/device-plugins")
CONFIG = Path("/config/config.json")


class FakePlugin:
    """Serves two shares of one card; what it was asked is in ``calls``."""

    def __init__(self, directory: Path, name: str = "fake.sock") -> None:
        self.calls: list[tuple[str, Any]] = []
        self.refuses = ""
        self.options = {"get_preferred_allocation_available": True, "pre_start_required": True}
        self.lists: queue.Queue[Any] = queue.Queue()
        self._directory, self._name = directory, name
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        handlers = {}
        for call, (request, response, streams) in wire.CALLS.items():
            make = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
            handlers[call] = make(
                getattr(self, call),
                request_deserializer=wire.message(request).FromString,
                response_serializer=wire.message(response).SerializeToString,
            )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))

    def start(self, version: str = wire.VERSION) -> None:
        """Serve and register. Raises grpc.RpcError."""
        self._server.add_insecure_port(f"unix:{self._directory / self._name}")
        self._server.start()
        with grpc.insecure_channel(f"unix:{self._directory / 'kubelet.sock'}") as channel:
            register = channel.unary_unary(
                wire.REGISTER, wire.message("RegisterRequest").SerializeToString, wire.message("Empty").FromString
            )
            fields = {"version": version, "endpoint": self._name, "resource_name": "nvidia.com/gpu"}
            register(wire.message("RegisterRequest")(**fields, options=self.options), timeout=10)

    def stop(self) -> None:
        """End; the stream of device lists ends with it."""
        self.lists.put(None)
        self._server.stop(0).wait()

    def tell(self, *health: str) -> None:
        """Send a list of shares ``card-0``, ``card-1`` … with these healths, on NUMA node 1."""
        topology = {"nodes": [{"ID": 1}]}
        self.lists.put([{"ID": f"card-{i}", "health": h, "topology": topology} for i, h in enumerate(health)])

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        while (devices := self.lists.get()) is not None:
            yield wire.message("ListAndWatchResponse")(devices=devices)

    def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
        (asked,) = request.container_requests
        seen = (list(asked.available_deviceIDs), list(asked.must_include_deviceIDs), asked.allocation_size)
        self.calls.append(("prefer", seen))
        chosen = {"deviceIDs": list(asked.available_deviceIDs)[-asked.allocation_size :]}
        return wire.message("PreferredAllocationResponse")(container_responses=[chosen])

    def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.calls.append(("allocate", [list(one.devices_ids) for one in request.container_requests]))
        if self.refuses:
            context.abort(grpc.StatusCode.UNKNOWN, self.refuses)
        answer = {
            "envs": {"NVIDIA_VISIBLE_DEVICES": "card"}, "annotations": {"a": "b"},
            "mounts": [{"container_path": "/in", "host_path": "/out", "read_only": True}],
            "devices": [{"container_path": "/dev/x", "host_path": "/dev/null", "permissions": "rw"}],
            "cdi_devices": [{"name": "vendor/gpu=card"}],
        }  # fmt: skip
        return wire.message("AllocateResponse")(container_responses=[answer])

    def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.calls.append(("pre-start", list(request.devices_ids)))
        return wire.message("PreStartContainerResponse")()


def main() -> None:
    """Tell one share for each unit of ``devicesplitcount``, and write what was found in the lane to /tmp/seen."""
    plugin = FakePlugin(DIRECTORY, "nvidia-gpu.sock")
    (config,) = json.loads(CONFIG.read_text())["nodeconfig"]
    plugin.tell(*["Healthy"] * config["devicesplitcount"])
    plugin.start()
    seen = {
        "config": config, "arguments": sys.argv[1:], "fleet": Path(os.environ["NVML_STUB_FLEET"]).read_text(),
        "node": os.environ["NODE_NAME"], "library": Path(os.environ["LD_LIBRARY_PATH"], "libnvidia-ml.so.1").exists(),
        "kubeconfig": json.loads(Path(os.environ["KUBECONFIG"]).read_text()),
        "numa": Path("/sys/bus/pci/devices/0000:01:00.0/numa_node").read_text(),
    }  # fmt: skip
    Path("/tmp/seen").write_text(json.dumps(seen))
    signal.sigwait([signal.SIGTERM])
    plugin.stop()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    main()
