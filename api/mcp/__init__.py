"""The door for models: tools, resources and prompts of the Model Context Protocol.

Each of them is a request to the HTTP API, over the network (`recollect mcp`) or into the app that
serves `/mcp`: keys, roles, limits, tenants, users and rules are those of the routes, said once.
"""
