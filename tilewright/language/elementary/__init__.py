"""Elementary and special functions, implemented as formulas over the ops of the IR; see
`number`."""
