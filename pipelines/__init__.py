"""The shell: everything that touches a socket, a clock, a file or a model."""
