"""The tile IR: typed SSA with regions. `core` first, then `define`, then the rest."""
