"""The interpreter as a target: what it "compiles" to is the tile IR itself."""
