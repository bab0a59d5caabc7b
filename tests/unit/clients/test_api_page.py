"""The page of the HTTP API is what the API says of itself."""

from __future__ import annotations

from tests.api_page import TARGET, generated
from tests.client_models import openapi_document


def test_the_page_is_what_the_api_says() -> None:
    assert TARGET.read_text("utf-8") == generated(), "python -m tests.api_page"


def test_the_page_has_every_route() -> None:
    page = TARGET.read_text("utf-8")
    routes = [
        f"### {method.upper()} {path}\n"
        for path, methods in openapi_document()["paths"].items()
        for method in methods
    ]
    assert len(routes) > 20
    assert [route for route in routes if route not in page] == []
