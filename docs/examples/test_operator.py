"""An operator's author: what does my pod template become, and why does it wait?"""

import pytest

from pytest_hami.expect.podspec import Container


@pytest.mark.hami_fleet("mixed")
def test_a_large_model_waits_for_a_large_card(hami, hami_nodes):
    large, small = hami_nodes
    worker = Container("worker", memory=20_000, cores=50)
    hami.pod(worker, on=small).pending("1/1 CardInsufficientMemory").delete()
    pod = hami.pod(worker).running(memory=20_000, cores=50, cards=[large.cards[0].uuid])
    assert pod.env("worker")["CUDA_DEVICE_MEMORY_LIMIT_0"] == "20000m"
