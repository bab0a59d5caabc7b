"""The work: settings, services, stages, the runner, and the Faust apps that drive it live."""
