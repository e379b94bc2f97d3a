"""Reference kernels: each file is a complete solution of one problem of the deck."""
