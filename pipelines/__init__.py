"""The shell around the pure folders: everything that touches a socket, a clock, a file or a model."""
