"""Our kubelet: the device-plugin API, seen from its side, and what a real device plugin needs around it."""
