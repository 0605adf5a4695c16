"""One module for each thing measured; each has `measure(quick=…)`, which gives its figures."""
