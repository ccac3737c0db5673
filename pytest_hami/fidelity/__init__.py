"""Replays what a real HAMi was recorded to do through the model, and tells where the two disagree."""
