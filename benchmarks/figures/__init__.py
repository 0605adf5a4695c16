"""One module per group of figures: `measure(quick=...)` returns them."""
