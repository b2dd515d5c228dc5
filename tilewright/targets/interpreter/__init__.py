"""The interpreter as a target: its compiled form is the text of the tile IR."""
