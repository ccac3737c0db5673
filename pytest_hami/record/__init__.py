"""Records what a real HAMi scheduler does, in the format of fixtures/evidence/README.md."""
