"""The stages as Faust apps."""
