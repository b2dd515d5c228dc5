"""The passes on tile IR, one per file, with the same name."""
