"""The report: an event stream, a model made of it, and outputs made of the model."""
