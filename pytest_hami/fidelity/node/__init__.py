"""Replays what a real device plugin was recorded to do through the model of the simulated node."""
