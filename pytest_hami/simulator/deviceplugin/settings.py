"""What a device plugin was started with: device-config, node config, flags and environment in one.

Source: HAMi 2.10.0, cmd/device-plugin/nvidia/main.go, pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go
(readFromConfigFile) and pkg/device/nvidia/device.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
TRUE_WORDS = frozenset({"1", "t", "T", "TRUE", "true", "True"})
"""What Go reads as true."""
CHART = {"deviceSplitCount": 10, "deviceMemoryScaling": 1, "deviceCoreScaling": 1, "libCudaLogLevel": "1"}
"""The values of device-config.yaml that a node may override, as the chart writes them."""
# Of each value: the key in device-config.yaml, the key in config.json, the types that the latter may have.
_VALUES: Mapping[str, tuple[str, str, tuple[type, ...]]] = {
    "split_count": ("deviceSplitCount", "devicesplitcount", (int,)),
    "memory_scaling": ("deviceMemoryScaling", "devicememoryscaling", (int, float)),
    "core_scaling": ("deviceCoreScaling", "devicecorescaling", (int, float)),
    "preconfigured_memory": ("preConfiguredDeviceMemory", "preconfigureddevicememory", (int,)),
    "log_level": ("libCudaLogLevel", "libcudaloglevel", (str,)),
    "numa_hints": ("enableNumaTopology", "enablenumatopology", (bool,)),
}
_OTHER: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "operatingmode": (str,),
    "migstrategy": (str,),
    "filterdevices": (dict,),
    "enablegetpreferredallocation": (bool,),
}
NODE_KEYS = frozenset({key for _, key, _ in _VALUES.values()} | _OTHER.keys())
"""The keys of a node in config.json."""
# Flags that the plugin reads, and the variable of each; a variable without a flag has none.
_FLAGS = {
    "pass-device-specs": "PASS_DEVICE_SPECS", "device-list-strategy": "DEVICE_LIST_STRATEGY",
    "device-id-strategy": "DEVICE_ID_STRATEGY", "nvidia-driver-root": "NVIDIA_DRIVER_ROOT", "dev-root": "NVIDIA_DEV_ROOT",
    "gdrcopy-enabled": "GDRCOPY_ENABLED", "gds-enabled": "GDS_ENABLED", "mofed-enabled": "MOFED_ENABLED",
    "kubelet-socket": "KUBELET_SOCKET", "cdi-annotation-prefix": "CDI_ANNOTATION_PREFIX", "v": "",
    "fail-on-init-error": "FAIL_ON_INIT_ERROR", "mig-strategy": "MIG_STRATEGY", "config-file": "CONFIG_FILE",
}  # fmt: skip
_ALIASES = {"nvidia-dev-root": "dev-root"}
# Flags of which the plugin reads nothing (cmd/device-plugin/nvidia/vgpucfg.go).
_DEAD = frozenset({
    "node-name", "device-split-count", "device-memory-scaling", "device-cores-scaling", "disable-core-limit",
    "resource-name",
})  # fmt: skip
# Variables that are about the machine around the plugin.
_MACHINE = frozenset({
    "NODE_NAME", "HOOK_PATH", "ENABLE_TOPOLOGY_SCORE", "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS",
    "LD_LIBRARY_PATH", "KUBECONFIG", "DRIVER_ROOT_CTR_PATH", "HOME", "PATH", "NodeName",
    "DEVICE_SPLIT_COUNT", "DEVICE_MEMORY_SCALING", "DEVICE_CORES_SCALING", "DISABLE_CORE_LIMIT",
})  # fmt: skip


class Unmodelled(Exception):
    """A setting that the model does not play; the text names it."""


class StartError(Exception):
    """The plugin ends at its start with code 1; the text is its last words."""


@dataclass(frozen=True)
class AllowedProfiles:
    """MIG profiles that cards of some models may be cut into; a model is part of a card's name."""

    models: tuple[str, ...]
    profiles: tuple[str, ...]


@dataclass(frozen=True)
class Settings:
    """One start of a plugin. None where device-config lacks a value without which the plugin panics.

    ``preconfigured_memory`` in MiB, for cards that do not tell theirs; ``filtered`` are UUIDs and ``filtered_indexes``
    the indexes of cards that are left out; ``xids`` says of XIDs whether they are ignored, key 0 of all others.
    """

    node: str = ""
    mode: str = "hami-core"
    split_count: int | None = 10
    memory_scaling: float | None = 1.0
    core_scaling: float | None = 1.0
    log_level: str | None = "1"
    preconfigured_memory: int | None = None
    numa_hints: bool | None = None
    core_limit_disabled: bool = False
    prefers: bool = False
    filtered: frozenset[str] = frozenset()
    filtered_indexes: frozenset[int] = frozenset()
    allowed: tuple[AllowedProfiles, ...] = ()
    resource: str = "nvidia.com/gpu"
    strategies: frozenset[str] = frozenset({"envvar"})
    id_strategy: str = "uuid"
    device_specs: bool = False
    dev_root: str = "/"
    enabled: tuple[str, ...] = ()
    annotation_prefix: str = "cdi.k8s.io/"
    kubelet: bool = True
    hook_path: str = "/usr/local"
    pair_scores: bool = False
    xids: Mapping[int, bool] = field(default_factory=lambda: ignored_xids("", ""))

    @property
    def cdi(self) -> bool:
        """Whether a strategy names cards for CDI."""
        return any(name.startswith("cdi-") for name in self.strategies)

    @property
    def cdi_only(self) -> bool:
        """Whether cards are named for CDI and in no other way."""
        return all(name.startswith("cdi-") for name in self.strategies)


def settings(
    node: str,
    device_config: Mapping[str, Any],
    node_configs: Sequence[Mapping[str, Any]] | None,
    flags: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
) -> Settings:
    """Return what a plugin makes of its files, flags and variables.

    ``device_config`` is the section ``nvidia:`` of device-config.yaml, ``node_configs`` the list in config.json, None where
    the file is missing. Raises StartError where the plugin refuses them, Unmodelled.
    """
    environ = dict(env or {})
    options = _options(flags, environ)
    values = _device_values(device_config)
    other: dict[str, Any] = {"mode": ""}
    if node_configs is not None and _readable(node_configs):
        other = {"mode": "hami-core"} | _node_values(node, node_configs, values)
    chosen = options.get("device-list-strategy", "envvar").split(",")
    return Settings(
        node=node,
        **values,
        **other,
        core_limit_disabled=bool(device_config.get("disableCoreLimit")),
        allowed=tuple(
            AllowedProfiles(tuple(entry.get("models") or ()), tuple(entry.get("profiles") or ()))
            for entry in device_config.get("migProfileAllowlist") or ()
        ),
        resource=str(device_config.get("resourceCountName", "nvidia.com/gpu")),
        strategies=frozenset(chosen),
        id_strategy=options.get("device-id-strategy", "uuid"),
        device_specs=_true(options.get("pass-device-specs")),
        dev_root=options.get("dev-root") or options.get("nvidia-driver-root") or "/",
        enabled=tuple(variable for name, variable in _MODES.items() if _true(options.get(name))),
        annotation_prefix=options.get("cdi-annotation-prefix", "cdi.k8s.io/"),
        kubelet=options.get("kubelet-socket") != "",
        hook_path=environ.get("HOOK_PATH", "/usr/local"),
        pair_scores=environ.get("ENABLE_TOPOLOGY_SCORE") == "true",
        xids=ignored_xids(environ.get("DP_DISABLE_HEALTHCHECKS", ""), environ.get("DP_ENABLE_HEALTHCHECKS", "")),
    )


_MODES = {"gdrcopy-enabled": "NVIDIA_GDRCOPY", "gds-enabled": "NVIDIA_GDS", "mofed-enabled": "NVIDIA_MOFED"}


def check(found: Settings) -> None:
    """Raise StartError for settings that the plugin refuses, in its order (validateFlags, ValidateMigProfileAllowlist)."""
    bad = [name for name in found.strategies if name not in STRATEGIES]
    if bad:
        raise StartError(f"unable to validate flags: invalid --device-list-strategy option: invalid strategy: {bad[0]}")
    if found.id_strategy not in ("uuid", "index"):
        raise StartError(f"unable to validate flags: invalid --device-id-strategy option: {found.id_strategy}")


def check_profiles(found: Settings) -> None:
    """Raise StartError for a list of MIG profiles that the plugin refuses."""
    for entry in found.allowed:
        if not entry.models or not entry.profiles:
            raise StartError(f"{_PROFILES}: MIG profile allowlist must define models and profiles")
        for profile in entry.profiles:
            slices, dot, _ = profile.partition(".")
            if not dot or len(slices) < 2 or not slices.endswith("g"):
                raise StartError(f'{_PROFILES}: invalid MIG profile "{profile}"')


_PROFILES = "error getting plugins: unable to create plugins: failed to create plugin: validate MIG profile allowlist"


def ignored_xids(disabled: str, enabled: str) -> dict[int, bool]:
    """Return of XIDs whether they are ignored; key 0 stands for all that are not named (rm/health.go).

    >>> ignored_xids("", "")[31], ignored_xids("", "31")[31], ignored_xids("all", "79")
    (True, False, {0: True, 13: True, 31: True, 43: True, 45: True, 68: True, 109: True, 79: False})
    """
    found = dict.fromkeys(_xids(disabled), True) | dict.fromkeys((13, 31, 43, 45, 68, 109), True)
    return found | dict.fromkeys(_xids(enabled), False)


def _xids(text: str) -> list[int]:
    words = [word.strip() for word in text.lower().split(",")]
    if "all" in words or "xids" in words:
        return [0]
    return [int(word) for word in words if word.isascii() and word.isdigit()]


def _true(text: str | None) -> bool:
    return text in TRUE_WORDS


def _options(flags: Iterable[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return the flags by name: those of the command line before those of the environment."""
    variables = {variable: name for name, variable in _FLAGS.items() if variable}
    found: dict[str, str] = {}
    for variable, text in env.items():
        if variable in variables:
            found[variables[variable]] = text
        elif variable not in _MACHINE:
            raise Unmodelled(f"variable {variable}")
    told: dict[str, str] = {}
    for flag in flags:
        name, given, value = flag.lstrip("-").partition("=")
        name = _ALIASES.get(name, name)
        if name in _DEAD:
            continue
        if name not in _FLAGS:
            raise Unmodelled(f"flag {flag}")
        told[name] = (
            f"{told[name]},{value}" if name == "device-list-strategy" and name in told else value if given else "true"
        )
    found |= told
    if found.get("mig-strategy", "none") != "none":
        raise Unmodelled(f"flag --mig-strategy={found['mig-strategy']}")
    return found


def _device_values(config: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, (key, _, _) in _VALUES.items():
        value = config.get(key)
        values[name] = str(value) if name == "log_level" and value is not None else value
    return values


def _readable(configs: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether Go reads the file: one wrong type and none of it counts."""
    types: dict[str, tuple[type, ...]] = {key: kinds for _, key, kinds in _VALUES.values()} | dict(_OTHER)
    for config in configs:
        for key, value in config.items():
            kinds = types.get(key.lower())
            if value is None or kinds is None:
                continue
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                return False
            if key.lower() == "devicesplitcount" and int(str(value)) < 0:
                return False
    return True


def _node_values(node: str, configs: Sequence[Mapping[str, Any]], values: dict[str, Any]) -> dict[str, Any]:
    """Return what the node's entries say beside ``values``, which they override.

    A zero value overrides nothing but a value that is missing (github.com/imdario/mergo).
    """
    other: dict[str, Any] = {}
    for entry in configs:
        config = {key.lower(): value for key, value in entry.items() if value is not None}
        if config.get("name", "") != node:
            continue
        for name, (_, key, _) in _VALUES.items():
            if key in config and (config[key] or values[name] is None):
                values[name] = config[key]
        filtered = {key.lower(): value for key, value in (config.get("filterdevices") or {}).items()}
        if filtered.get("uuid") or filtered.get("index"):
            other["filtered"] = frozenset(filtered.get("uuid") or ())
            other["filtered_indexes"] = frozenset(filtered.get("index") or ())
        if config.get("operatingmode"):
            other["mode"] = config["operatingmode"]
        other["prefers"] = bool(config.get("enablegetpreferredallocation"))
    return other
