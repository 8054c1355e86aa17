"""Side-by-side measurements. Each module prints ratios taken in one run; docs/performance.md says how to read them."""
