"""Our stand-in for NVML, asked as its clients ask: through its C functions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hami.contract.register import Device
from pytest_hami.kubelet import nvml

# A process of its own for each question, for the library reads its environment and keeps its state.
PRELUDE = """
import ctypes, os, sys, threading
fleet = os.environ["NVML_STUB_FLEET"]
lib = ctypes.CDLL(sys.argv[1])
def call(name, *arguments): return getattr(lib, "nvml" + name)(*arguments)
def handle(index):
    found = ctypes.c_void_p()
    code = call("DeviceGetHandleByIndex_v2", index, ctypes.byref(found))
    return found if code == 0 else code
def number(name, *arguments):
    value = ctypes.c_uint()
    code = call(name, *arguments, ctypes.byref(value))
    return value.value if code == 0 else -code
def text(name, gpu):
    value = ctypes.create_string_buffer(96)
    code = call(name, gpu, value, 96)
    return value.value.decode() if code == 0 else -code
def memory(gpu):
    values = (ctypes.c_ulonglong * 3)()
    code = call("DeviceGetMemoryInfo", gpu, values)
    return [value >> 20 for value in values] if code == 0 else -code
"""


@pytest.fixture(scope="session")
def library(tool: Callable[..., str]) -> Path:
    tool("cc", remedy="install a C compiler")
    return nvml.library()


@pytest.fixture
def ask(library: Path, tmp_path: Path) -> Callable[[str, str], str]:
    def run(fleet: str, program: str) -> str:
        (tmp_path / "fleet").write_text(fleet)
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + program, str(library)],
            env={"NVML_STUB_FLEET": str(tmp_path / "fleet")}, capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_it_is_compiled_once_and_told_of_by_its_source(library: Path, tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    first = nvml.library(environ)
    made = first.stat().st_mtime_ns
    assert nvml.library({**environ, "PATH": ""}) == first
    assert first.stat().st_mtime_ns == made
    assert [path.name for path in first.parent.iterdir()] == ["libnvidia-ml.so.1"]


def test_without_a_compiler_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(nvml.NvmlUnavailable, match=r"no C compiler \(cc\).*--hami-nvml"):
        nvml.library({"XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)})
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho no headers >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(nvml.NvmlUnavailable, match="cannot compile our NVML stand-in: no headers"):
        nvml.library({"XDG_CACHE_HOME": str(tmp_path), "PATH": f"{tmp_path}:/bin"})


def test_it_shows_the_cards_of_a_fleet(ask: Callable[[str, str], str]) -> None:
    cards = [
        Device(id="GPU-b", index=1, devmem=16_384, type="NVIDIA-Tesla T4"),
        Device(id="GPU-a", index=0, devmem=40_960, type="NVIDIA A100-SXM4-40GB"),
    ]
    shown = ask(nvml.fleet_text(cards), """
print(call("DeviceGetCount_v2", ctypes.byref(ctypes.c_uint())), call("Init_v2"), number("DeviceGetCount_v2"), handle(2))
for index in (0, 1):
    gpu = handle(index)
    bus = ctypes.create_string_buffer(68)
    call("DeviceGetPciInfo_v3", gpu, bus)
    print(text("DeviceGetUUID", gpu), text("DeviceGetName", gpu), number("DeviceGetIndex", gpu), memory(gpu),
          bus.raw[36:52].decode())
found = ctypes.c_void_p()
print(call("DeviceGetHandleByUUID", b"GPU-b", ctypes.byref(found)), found.value == handle(1).value,
      call("DeviceGetHandleByUUID", b"GPU-c", ctypes.byref(found)))
""")  # fmt: skip
    assert shown.splitlines() == [
        "1 0 2 2",
        "GPU-a NVIDIA A100-SXM4-40GB 0 [40960, 40448, 512] 00000000:01:00.0",
        "GPU-b NVIDIA-Tesla T4 1 [16384, 15360, 1024] 00000000:02:00.0",
        "0 True 6",
    ]


def test_an_edit_is_seen_at_the_next_start(ask: Callable[[str, str], str]) -> None:
    shown = ask("gpu GPU-a mem=10 used=4 util=7 memutil=3 name=NVIDIA A\n", """
call("Init_v2")
rates = (ctypes.c_uint * 2)()
call("DeviceGetUtilizationRates", handle(0), rates)
print(memory(handle(0)), list(rates))
with open(fleet + ".new", "w") as file: file.write("gpu GPU-a mem=0 name=NVIDIA A\\nfail nvmlDeviceGetName 15\\n")
os.replace(fleet + ".new", fleet)
print(memory(handle(0)))
call("Init_v2")
print(memory(handle(0)), text("DeviceGetName", handle(0)))
""")  # fmt: skip
    assert shown.splitlines() == ["[10, 6, 4] [7, 3]", "[10, 6, 4]", "-3 -15"]


def test_without_a_fleet_there_is_no_driver(ask: Callable[[str, str], str]) -> None:
    assert ask("", "os.remove(fleet); print(call('Init_v2'))") == "9"


def test_events_are_lines_of_a_file(ask: Callable[[str, str], str]) -> None:
    shown = ask("gpu GPU-a mem=1 name=A\ngpu GPU-b mem=1 name=B\n", """
call("Init_v2")
events = open(fleet + ".events", "a", buffering=1)
events.write("xid 1 79\\n")
group, event = ctypes.c_void_p(), (ctypes.c_ulonglong * 4)()
call("EventSetCreate", ctypes.byref(group))
call("DeviceRegisterEvents", handle(1), ctypes.c_ulonglong(8), group)
def wait(): return call("EventSetWait_v2", group, event, 100)
print(wait())
events.write("xid 0 79\\nxid 1 48\\n")
print(wait(), event[0] == handle(1).value, list(event[1:3]), wait())
threading.Timer(0.05, events.write, ["error 999\\n"]).start()
print(wait())
""")  # fmt: skip
    assert shown.splitlines() == ["10", "0 True [8, 48] 10", "999"]


def test_mig_instances_are_made_where_they_may_be(ask: Callable[[str, str], str]) -> None:
    fleet = (
        "gpu GPU-a mem=40960 mig=1 name=NVIDIA A100\ngpu GPU-b mem=1 name=B\n"
        "mig 0 mem=4864 slices=1 instances=7 sm=14 at=0:1,1:1\nmig 4 mem=40192 slices=7 instances=1 sm=98 at=0:8\n"
    )
    shown = ask(fleet, """
call("Init_v2")
gpu = handle(0)
def at(start, size): return (ctypes.c_uint * 2)(start, size)
def make(profile, place):
    made = ctypes.c_void_p()
    code = call("DeviceCreateGpuInstanceWithPlacement", gpu, profile, place, ctypes.byref(made))
    return made if code == 0 else code
print(number("DeviceGetMaxMigDeviceCount", gpu), number("DeviceGetMaxMigDeviceCount", handle(1)), make(0, at(2, 1)))
first = make(0, at(1, 1))
print(make(0, at(1, 1)), make(4, at(0, 8)))
compute, device = ctypes.c_void_p(), ctypes.c_void_p()
print(call("DeviceGetMigDeviceHandleByIndex", gpu, 0, ctypes.byref(device)),
      call("GpuInstanceCreateComputeInstance", first, 0, ctypes.byref(compute)),
      call("DeviceGetMigDeviceHandleByIndex", gpu, 0, ctypes.byref(device)),
      text("DeviceGetUUID", device), memory(device), number("DeviceGetGpuInstanceId", device))
print(call("GpuInstanceDestroy", first), call("ComputeInstanceDestroy", compute), call("GpuInstanceDestroy", first),
      isinstance(make(4, at(0, 8)), ctypes.c_void_p))
""")  # fmt: skip
    assert shown.splitlines() == [
        "8 0 2",
        "23 23",
        "6 0 0 MIG-00000000-0001-4000-8000-000000000001 [4864, 4864, 0] 1",
        "19 0 0 True",
    ]
