"""What HAMi promises, as pure functions and tables by release."""
