"""Elementary and special functions, written once as formulas over the ops; see `number`."""
