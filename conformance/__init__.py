"""The conformance suite: each check is one function that reads like its claim."""
