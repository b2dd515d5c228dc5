"""What happens at a launch: arguments are bound and specialised, code is found or made, and run."""
