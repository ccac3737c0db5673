"""Somebody who needs the cluster and nothing else: the official client on its kubeconfig."""

from kubernetes import client, config


def test_nodes_advertise_shares(hami_kubeconfig, hami_nodes):
    api = client.CoreV1Api(config.new_client_from_config(str(hami_kubeconfig)))
    for pin in hami_nodes:
        node = api.read_node(name=pin.name)
        assert node.status.allocatable["nvidia.com/gpu"] == "20"
