"""What agents do, made up: the incident of the demonstration, and sessions without end for load."""
