"""One small agent, written five ways; each is run as its users would run it, with a scripted model.

`story` says what happens. Each of the other modules tells it to the memory through one door.
"""
