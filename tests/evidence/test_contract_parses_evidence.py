"""Everything recorded from the real HAMi 2.10.0 is understood by the contract, and written again byte by byte."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_hami.contract import allocation, env, events, metrics, quantities, reasons, register
from pytest_hami.contract.quantities import DeviceConfig
from pytest_hami.contract.releases import Release

Load = Callable[..., tuple[dict[str, Any], ...]]
SCHEDULER = ("systematic", "random", "extra")
ALLOCATED, TO_ALLOCATE = "hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate"
OWN_EVENTS = {"FilteringSucceed", "FilteringFailed", "BindingSucceed", "BindingFailed"}
EVIDENCE = Path(__file__).resolve().parents[2] / "fixtures" / "evidence"
MONITOR = EVIDENCE / "hami-2.10.0" / "monitor-synthetic.prom"


def strings(value: Any) -> Iterator[tuple[str, str]]:
    """Every (key, text) pair anywhere inside a recorded line."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, str):
                yield key, inner
            else:
                yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def states(scenario: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The observed state of every pod after every step, waiting pods included."""
    for step in scenario["steps"]:
        observed = step.get("observed") or {}
        if step["op"] == "create":
            yield observed
        yield from (observed.get("pending") or {}).values()


def recorded_events(scenario: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for state in states(scenario):
        yield from ((event["reason"], event["message"]) for event in state.get("events") or ())


def lines(load: Load, names: Iterable[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        yield from load(name)


def test_files_are_complete(scenarios: Load) -> None:
    counts = {name: len(scenarios(name)) for name in (*SCHEDULER, "allocate", "full-chain")}
    plugin = {name: len(scenarios(f"plugin-{name}")) for name in ("register", "preferred", "lifecycle")}
    assert counts == {"systematic": 157, "random": 200, "extra": 13, "allocate": 86, "full-chain": 6}
    assert plugin == {"register": 44, "preferred": 16, "lifecycle": 38}


def test_every_allocation_round_trips(scenarios: Load) -> None:
    keys = {ALLOCATED, TO_ALLOCATE, "vgpu-devices-allocated", "vgpu-devices-to-allocate"}
    seen: Counter[str] = Counter()
    for name in (*SCHEDULER, "full-chain"):
        for line in scenarios(name):
            for key, text in strings(line):
                # Scenario ghost-copied patches a pod with this text to see what HAMi does with it.
                if key in keys and text != "GPU-A,NVIDIA:;":
                    assert allocation.encode(allocation.parse(text)) == text
                    seen[name] += 1
    assert seen["systematic"] >= 2000
    assert seen["random"] >= 4100
    assert seen["extra"] >= 40
    assert seen["full-chain"] >= 6


def test_groups_belong_to_containers_by_the_rule_of_the_card_type(scenarios: Load) -> None:
    assigned = 0
    for line in lines(scenarios, SCHEDULER):
        config = DeviceConfig.from_dict(line.get("device_config") or {})
        kinds = {node["node"]: {card.get("type") for card in node.get("devices") or ()} for node in line["fleet"]}
        for step in line["steps"]:
            observed = step.get("observed") or {}
            text = (observed.get("annotations") or {}).get(ALLOCATED)
            # A pod that came with this annotation already did not get it from HAMi; an added node is not in the fleet.
            if step["op"] != "create" or not text or observed["scheduled"] not in kinds:
                continue
            if ALLOCATED in (step["object"]["metadata"].get("annotations") or {}):
                continue
            stored = patched(step["object"], observed["mutated"])
            requests = quantities.pod_requests(stored, config)
            asking = [(name, request is not None) for name, _, request in requests]
            kept = kinds[observed["scheduled"]] == {"NVIDIA"}
            shares = allocation.assign(allocation.parse(text), asking, positions_kept=kept)
            for name, _, request in requests:
                assert len(shares[name]) == (request.count if request else 0), (line["id"], text)
            assigned += 1
    assert assigned >= 2900


def test_every_share_has_the_requested_size(scenarios: Load) -> None:
    compared = 0
    for line in lines(scenarios, SCHEDULER):
        config = DeviceConfig.from_dict(line.get("device_config") or {})
        changing = any(step["op"] in {"update_node", "add_node"} for step in line["steps"])
        sizes = {card.id: card.devmem for node in line["fleet"] for card in cards_of(node)}
        for step in line["steps"]:
            observed = step.get("observed") or {}
            text = (observed.get("annotations") or {}).get(ALLOCATED)
            if changing or step["op"] != "create" or not text or not observed["scheduled"]:
                continue
            if ALLOCATED in (step["object"]["metadata"].get("annotations") or {}):
                continue
            requests = [
                request
                for _, _, request in quantities.pod_requests(patched(step["object"], observed["mutated"]), config)
                if request
            ]
            groups = [group for group in allocation.parse(text) if group]
            for request, group in zip(requests, groups, strict=True):
                for share in group:
                    assert share.memory == request.memory_on(sizes[share.uuid]), (line["id"], step["object"], text)
                    assert share.cores == min(request.cores, 100)
                    compared += 1
    assert compared >= 3000


def cards_of(node: dict[str, Any]) -> tuple[register.Device, ...]:
    """The cards that a recorded node registered; a verbatim text stands for itself."""
    if "register" in node:
        try:
            return register.parse(node["register"] or "[]")
        except register.RegisterError:
            return ()
    return tuple(
        register.Device(**{key: value for key, value in card.items() if key in FIELDS})
        for card in node.get("devices") or ()
    )


def patched(pod: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The submitted pod with the recorded changes of resources and annotations, which is what HAMi's filter read."""
    spec = {key: [dict(entry) for entry in pod["spec"].get(key) or ()] for key in ("initContainers", "containers")}
    for change in patch if isinstance(patch, list) else ():
        match = re.fullmatch(r"/spec/(initContainers|containers)/(\d+)/resources(/.*)?", change["path"])
        if not match:
            continue
        container = spec[match[1]][int(match[2])]
        keys = [key.replace("~1", "/") for key in (match[3] or "").split("/")[1:]]
        resources = {kind: dict(values) for kind, values in (container.get("resources") or {}).items()}
        if not keys:
            resources = change["value"]
        elif len(keys) == 1:
            resources[keys[0]] = change["value"]
        elif change["op"] == "remove":
            resources[keys[0]].pop(keys[1])
        else:
            resources.setdefault(keys[0], {})[keys[1]] = change["value"]
        container["resources"] = resources
    return {"metadata": pod["metadata"], "spec": spec}


def test_every_served_container_erases_its_group(scenarios: Load) -> None:
    checked = 0
    for case in scenarios("allocate"):
        texts = {name: pod["annotations"].get(TO_ALLOCATE) for name, pod in case["before"]["pods"].items()}
        for call in case["calls"]:
            after = {name: (notes or {}).get(TO_ALLOCATE) for name, notes in call["after"]["pods"].items()}
            if "response" in call and len(call["response"].get("container_responses") or ()) == len(call["request"]):
                changed = [name for name, text in after.items() if text != texts.get(name)]
                for name in changed:
                    text = texts[name]
                    assert text is not None
                    assert after[name] == allocation.erase_next(text, len(call["request"])), case["case"]
                    checked += 1
            texts = after
    assert checked >= 60


def test_every_answer_has_the_promised_variables(scenarios: Load) -> None:
    # These cases are about another list strategy, added variables, another hook path, or ids chosen by the kubelet.
    beside = re.compile(r"C09|C10|C13|C19|C20|C26|C4\d|M\d|P\d|E\d")
    answers = 0
    for case in scenarios("allocate"):
        if beside.match(case["case"]):
            continue
        config = {**case["fleet"]["device_config"]}
        for node in case["fleet"]["node_config"] or ():
            if isinstance(node, dict) and node.get("name", "").startswith("dp-node"):
                config["deviceMemoryScaling"] = node.get("devicememoryscaling") or config["deviceMemoryScaling"]
                config["libCudaLogLevel"] = node.get("libcudaloglevel") or config["libCudaLogLevel"]
        texts = [pod["annotations"].get(TO_ALLOCATE) or "" for pod in case["before"]["pods"].values()]
        groups = [group for text in texts if text.endswith(";") for group in parsed(text) if group]
        expected = [
            env.container_env(
                group,
                oversubscribe=config.get("deviceMemoryScaling", 1) > 1,
                log_level=str(config.get("libCudaLogLevel", "")),
                core_limit_disabled=bool(config.get("disableCoreLimit")),
            )
            for group in groups
        ]
        given = iter(expected)
        for call in case["calls"]:
            for answer in (call.get("response") or {}).get("container_responses") or ():
                found = dict(answer["envs"])
                assert env.CACHE_PATTERN.fullmatch(found.pop("CUDA_DEVICE_MEMORY_SHARED_CACHE")), case["case"]
                # Answers come in the order of the entries; with several pods the lock decides whose turn it is.
                right = [next(given)] if len(texts) == 1 else expected
                assert found in right, case["case"]
                answers += 1
    assert answers >= 45


def parsed(text: str) -> allocation.Groups:
    try:
        return allocation.parse(text)
    except allocation.AllocationError:
        return ()


def test_every_answer_has_the_promised_mounts(scenarios: Load) -> None:
    seen: Counter[bool] = Counter()
    for case in scenarios("allocate"):
        if re.match(r"C09|C20|C26|M\d", case["case"]):
            continue
        for call in case["calls"]:
            for answer in (call.get("response") or {}).get("container_responses") or ():
                found = tuple(
                    env.Mount(mount["container_path"], mount["host_path"], mount.get("read_only", False))
                    for mount in answer["mounts"]
                )
                home = next(mount.host_path for mount in found if mount.container_path == "/usr/local/vgpu")
                uid, _, container = home.rpartition("/")[2].partition("_")
                disabled = not any(mount.container_path == env.PRELOAD_FILE for mount in found)
                assert set(found) == set(env.mounts(uid, container, control_disabled=disabled)), case["case"]
                seen[disabled] += 1
    assert seen[False] >= 50
    assert seen[True] >= 2


def test_every_event_round_trips(scenarios: Load) -> None:
    seen: Counter[str] = Counter()
    for line in lines(scenarios, SCHEDULER):
        for reason, message in recorded_events(line):
            if reason not in OWN_EVENTS:
                continue
            event = events.parse_event(reason, message)
            seen[type(event).__name__] += 1
            assert written(event) == message
            if isinstance(event, events.FilterFailed):
                assert event.reason in {member.value for member in reasons.Reason}
                assert event.count == len(event.nodes)
            if isinstance(event, events.FilterSucceeded):
                assert list(event.scores)[-1] == event.node
    minimum = {"FilterFailed": 2000, "NoAvailableNode": 1500, "FilterSucceeded": 3000, "BindSucceeded": 3000}
    assert {name: seen[name] for name in minimum if seen[name] < minimum[name]} == {}
    assert seen["BindFailed"] >= 7
    assert seen["CalcScoreFailed"] >= 10
    assert seen["OtherFilterFailure"] >= 1


def written(event: events.Event) -> str:
    match event:
        case events.FilterFailed(_, reason, nodes):
            return events.filter_failed(reason, nodes)
        case events.NoAvailableNode(count):
            return events.no_available_node(count)
        case events.FilterSucceeded(node, not_fit, scores):
            return events.filter_succeeded(node, not_fit, list(scores.items()))
        case events.BindSucceeded(node, namespace, pod):
            return events.bind_succeeded(node, namespace, pod)
    return event.text


def test_every_refusal_is_split_into_node_reasons(scenarios: Load) -> None:
    refusals = detailed = 0
    for line in lines(scenarios, SCHEDULER):
        for state in states(line):
            message = state.get("pod_condition_message") or ""
            if state.get("pod_condition") != "Unschedulable":
                continue
            failed = reasons.parse_failed_scheduling(message)
            refusals += 1
            assert reasons.format_failed_scheduling(failed) == message
            # One node may lack several of Kubernetes' own resources; HAMi gives each node one text.
            assert sum(count for count, _ in failed.reasons) >= failed.nodes
            for _, text in failed.reasons:
                reason = reasons.parse_node_reason(text)
                if not reason.counts:
                    assert "/" not in text.split(" ")[0]
                    continue
                detailed += 1
                (cards,) = {cards for _, cards, _ in reason.counts}
                counts = {found: count for count, _, found in reason.counts}
                assert reasons.format_node_reason(counts, cards) == text
    assert refusals >= 1600
    assert detailed >= 2000


def test_reasons_of_events_and_refusal_agree(scenarios: Load) -> None:
    compared = 0
    for line in scenarios("random"):
        for state in states(line):
            if state.get("pod_condition") != "Unschedulable":
                continue
            told: Counter[str] = Counter()
            for count, text in reasons.parse_failed_scheduling(state["pod_condition_message"]).reasons:
                told.update({found.value: count for _, _, found in reasons.parse_node_reason(text).counts})
            events_say: Counter[str] = Counter()
            for event in (events.parse_event(e["reason"], e["message"]) for e in state["events"]):
                if isinstance(event, events.FilterFailed):
                    events_say[event.reason] += event.count
            assert told == events_say, line["id"]
            compared += 1
    assert compared >= 1400


def test_every_register_annotation_round_trips(scenarios: Load) -> None:
    texts = [text for case in scenarios("plugin-register") for key, text in strings(case) if key == "register"]
    texts += [text for line in scenarios("plugin-lifecycle") for key, text in strings(line) if key == "text"]
    plain = [text for text in texts if "migProfiles" not in text]
    for text in plain:
        assert register.encode(register.parse(text)) == text
    for text in texts:
        assert all(card.id.startswith("GPU-") for card in register.parse(text))
    assert len(plain) >= 34
    assert len(texts) > len(plain)


def test_every_fleet_registers_what_the_scheduler_then_showed(scenarios: Load) -> None:
    cards = 0
    for line in lines(scenarios, SCHEDULER):
        shown = (line.get("metrics") or {}).get("before") or {}
        for node in line["fleet"]:
            if "register" in node or node.get("unknown"):
                continue
            listed = cards_of(node)
            assert register.parse(register.encode(listed)) == listed
            for device in listed:
                row = shown.get(node["node"], {}).get(device.id)
                if row is not None:
                    assert row[:2] == [device.devmem * metrics.MIB, device.devcore], (line["id"], device)
                    cards += 1
    assert cards >= 540


FIELDS = {"id", "index", "count", "devmem", "devcore", "type", "numa", "mode", "health"}


def test_malformed_register_annotations_are_refused(scenarios: Load) -> None:
    texts = {node["register"] for line in scenarios("systematic") for node in line["fleet"] if node.get("register")}
    outcomes: Counter[bool] = Counter()
    for text in texts:
        try:
            register.parse(text)
            outcomes[True] += 1
        except register.RegisterError:
            outcomes[False] += 1
    assert outcomes[False] >= 1


def test_pod_metrics_are_the_shares_of_the_allocation(scenarios: Load) -> None:
    compared = 0
    for line in lines(scenarios, SCHEDULER):
        for step in line["steps"]:
            observed = step.get("observed") or {}
            samples = list(vgpu_samples(observed.get("vgpu") or {}))
            usage = metrics.pod_usage(samples)
            assert set(usage) == {tuple(pod.split("/")) for pod in observed.get("vgpu") or {}}
            spec = step["object"]["spec"] if step["op"] == "create" else {}
            text = (observed.get("annotations") or {}).get(ALLOCATED)
            if step["op"] != "create" or not text or not samples or spec.get("initContainers"):
                continue
            meta = step["object"]["metadata"]
            pod = (meta["namespace"], meta["name"])
            if pod not in usage or ALLOCATED in (meta.get("annotations") or {}):
                continue
            expected: dict[str, tuple[int, int]] = {}
            for share in (share for group in allocation.parse(text) for share in group):
                memory, cores = expected.get(share.uuid, (0, 0))
                expected[share.uuid] = (memory + share.memory, cores + max(share.cores, 0))
            assert usage[pod] == expected, (line["id"], text)
            compared += 1
    assert compared >= 900


def vgpu_samples(vgpu: dict[str, dict[str, list[float]]]) -> Iterator[metrics.Sample]:
    """The recorded short form as the two series it was made of."""
    for pod, cards in vgpu.items():
        namespace, _, name = pod.partition("/")
        for key, values in cards.items():
            uuid, node, index = re.fullmatch(r"(.*)@(.*)#(\d+)", key).groups()  # type: ignore[union-attr]
            assert index == "0"
            labels = {"namespace": namespace, "pod": name, "node": node, "device_uuid": uuid, "zone": "vGPU"}
            labels["container_index"] = index
            for series, value in zip((metrics.VGPU_MEMORY, metrics.VGPU_CORES), values, strict=True):
                yield metrics.Sample(series, frozenset(labels.items()), value)


def test_monitor_metrics_keep_their_label_sets() -> None:
    samples = metrics.parse(MONITOR.read_text(encoding="utf-8"))
    own = [sample for sample in samples if sample.name.startswith("hami_")]
    assert len(samples) == 35
    assert len(own) >= 20
    assert metrics.monitor_violations(samples, Release(2, 10, 0)) == []
    assert metrics.contract_violations(own, Release(2, 10, 0)) != []
    assert all(math.isfinite(sample.value) for sample in samples)


@pytest.mark.parametrize("release", [Release(2, 8, 3), Release(2, 9, 0)], ids=str)
def test_scheduler_metrics_of_older_releases_have_their_own_label_sets(release: Release) -> None:
    samples = metrics.parse((EVIDENCE / f"hami-{release}" / "metrics-sample.prom").read_text(encoding="utf-8"))
    assert len(samples) >= 19
    assert {sample.name for sample in samples} <= set(metrics.label_sets(release))
    assert metrics.contract_violations(samples, release) == []
    # 2.8 has only the names that later releases call legacy, which are no violation there but say nothing either.
    if release < Release(2, 9, 0):
        assert metrics.card_usage(samples) == {}
    else:
        assert metrics.contract_violations(samples, Release(2, 10, 0)) != []


@pytest.mark.parametrize("name", SCHEDULER)
def test_every_recorded_configuration_is_known(scenarios: Load, name: str) -> None:
    configured = [line["device_config"] for line in scenarios(name) if line.get("device_config")]
    for values in configured:
        DeviceConfig.from_dict(values)
    assert len(configured) >= {"systematic": 10, "random": 0, "extra": 0}[name]
