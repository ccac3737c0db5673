"""A simulated cluster: an API server and models of kube-scheduler, HAMi and node, as one process."""
