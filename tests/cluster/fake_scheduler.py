"""Our model behind the command line of a HAMi scheduler, to test how a binary is run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import yaml

from pytest_hami.simulator.certificates import ServerIdentity
from pytest_hami.simulator.hami.config import SchedulerConfig
from pytest_hami.simulator.hami.server import HamiServer

OURS = {"http_bind", "metrics-bind-address", "cert_file", "key_file", "device-config-file", "kube-qps", "kube-burst"}
KNOWN = {"overwriteEnv", "gpuCorePolicy", "runtimeClassName", "defaultGPUNum"}


async def serve(flags: dict[str, str]) -> None:
    kubeconfig = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
    nvidia = yaml.safe_load(Path(flags["device-config-file"]).read_text())["nvidia"]
    config = SchedulerConfig.from_flags(
        {key: value for key, value in nvidia.items() if key in KNOWN},
        {key: value for key, value in flags.items() if key not in OURS},
    )
    server = HamiServer(kubeconfig["clusters"][0]["cluster"]["server"], config)
    server._identity = ServerIdentity(b"", Path(flags["cert_file"]).read_bytes(), Path(flags["key_file"]).read_bytes())
    server._ports = tuple(int(flags[name].rpartition(":")[2]) for name in ("http_bind", "metrics-bind-address"))
    await server.start()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await server.stop()


def main(arguments: list[str]) -> None:
    if arguments == ["version"]:
        print("version:          v2.10.0")
        return
    pairs = (argument.lstrip("-").partition("=") for argument in arguments if argument.startswith("--"))
    asyncio.run(serve({name: value for name, _, value in pairs}))


if __name__ == "__main__":
    main(sys.argv[1:])
