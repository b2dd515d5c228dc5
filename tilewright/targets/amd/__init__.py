"""The AMD target: tile IR → LLVM IR → object file → code object (hsaco)."""
