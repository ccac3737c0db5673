"""What a pod reserves on each card."""

from hypothesis import given
from hypothesis import strategies as st

from pytest_hami.contract.allocation import DeviceShare
from pytest_hami.expect.accounting import Use, pod_use, total

SHARES = st.lists(
    st.tuples(
        st.booleans(), st.builds(DeviceShare, st.sampled_from(["A", "B"]), st.integers(0, 99), st.integers(0, 99))
    )
)


def test_init_containers_count_by_their_maximum_and_app_containers_by_their_sum():
    shares = [(True, DeviceShare("A", 4000, 10)), *[(False, DeviceShare("A", 3000, 20))] * 2]
    assert pod_use(shares) == {"A": Use(6000, 40, 2)}
    assert pod_use([(True, DeviceShare("A", 9000, 40)), (False, DeviceShare("A", 3000, 20))]) == {"A": Use(9000, 40, 1)}


@given(SHARES)
def test_a_pod_never_reserves_less_than_its_running_containers_or_any_init_container(shares):
    use = pod_use(shares)
    running = total([{share.uuid: Use(share.memory, share.cores, 1)} for is_init, share in shares if not is_init])
    for uuid, needed in running.items():
        assert use[uuid].at_least(needed) == use[uuid]
    for is_init, share in shares:
        if is_init:
            assert use[share.uuid].memory >= share.memory
    assert set(use) == {share.uuid for _, share in shares}
