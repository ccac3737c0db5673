"""Whatever a cluster says ends as an outcome of the check that asked, and the report stays valid and harmless."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

SUITE = r"""
import pytest
from pytest_hami.checks import Layer, check
from pytest_hami.kube.wait import wait_until

HOSTILE = {
    "markup": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "ansi": "\x1b[31mred\x1b[0m\x07",
    "long": "x" * (1 << 20),
    "deep": "[" * 100_000,
    "deep-json": '{"a":' * 20_000 + "1" + "}" * 20_000,
    "bidi": "\u202egpj.exe\u2066",
    "markdown": "| `@maintainers` | #1 ![x](http://x.example/y.png) ``` </details>",
    "nul": "a\x00b",
    "surrogate": "a\ud800b",
}

def declared(id):
    return check(id, title="t", claim="c", not_proven="n", layer=Layer.FILTER, jq=".")

@declared("mock-01")
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_register_annotation(hami, hami_node, text):
    key = "hami.io/node-nvidia-register"
    def seen():
        return hami.journal.find("Node", None, hami_node.name)["metadata"]["annotations"][key]
    before = seen()
    hami.client.patch("Node", hami_node.name, {"metadata": {"annotations": {key: text}}})
    wait_until(hami.journal, lambda: seen() != before, timeout=2, missing=lambda: "the patch")
    hami.registered(hami_node.name)

@declared("mock-02")
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_allocation(hami, hami_gpu, text):
    pod = hami.pod(on=hami_gpu, memory=1024).running()
    key = "hami.io/vgpu-devices-allocated"
    before = pod.current["metadata"]["annotations"][key]
    hami.client.patch("Pod", pod.name, {"metadata": {"annotations": {key: text}}}, pod.namespace)
    wait_until(hami.journal, lambda: pod.current["metadata"]["annotations"][key] != before, timeout=2,
               missing=lambda: "the patch")
    pod.running()

@declared("mock-03")
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_metrics(hami, hami_gpu, text, monkeypatch):
    monkeypatch.setattr(type(hami.cluster), "fresh_metrics", lambda self: text + "\nhami_gpu_shared_count{" + text)
    hami.samples()

@declared("mock-04")
@pytest.mark.parametrize("text", ["<script>alert(1)</script>|`@x`", "\x1b[31m", "ü\u202e"])
def test_ids(hami, text):
    raise AssertionError(text)
"""


class Tags(HTMLParser):
    """Collects what a browser would run or load."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.loads: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.loads += [(name, value) for name, value in attrs if name in {"src", "href"} or name.startswith("on")]


def test_hostile_data(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    done = pytester.runpytest_subprocess("-p", "no:randomly", "--hami-timeout-scale", "0.5", timeout=120)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    directory = pytester.path / "hami-report"
    report = json.loads((directory / "report.json").read_text())
    seen = {(check["id"], case["id"]): case["outcome"] for check in report["checks"] for case in check["cases"]}
    assert set(seen.values()) <= {"failed", "error"}, seen
    assert {id_ for id_, _ in seen} == {"mock-01", "mock-02", "mock-03", "mock-04"}
    assert len(seen) == 30
    assert report["complete"]

    page = (directory / "index.html").read_text()
    tags = Tags()
    tags.feed(page)
    assert not tags.seen & {"script", "img", "iframe", "object", "link", "form"}
    assert all(name == "href" and str(value).startswith("#") for name, value in tags.loads), tags.loads
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert len(page) < 1_000_000
    ET.parse(directory / "junit.xml")
    fragment = (directory / "pull-request.md").read_text()
    assert len(fragment) <= 60_000
    outside = "".join(fragment.split("```")[::2])
    assert fragment.count("```") % 2 == 0
    assert "<script" not in outside.replace("\\<", "")
    assert "@x" not in outside
