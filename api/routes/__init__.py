"""The endpoints, one module a resource."""
