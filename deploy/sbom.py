"""Prints what an installation is made of, as CycloneDX 1.5 in JSON: name, version, licence, purl.

Of the Python that runs it, so that the image says what is in it, not what was meant to be. The same
installation gives the same document: it has no time and no random number.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from typing import Any

OWN = "recollect"


def document() -> dict[str, Any]:
    """The bill of materials."""
    found = {_name(one): one for one in distributions()}
    own = found.pop(OWN)
    libraries = [_component(found[name], "library") for name in sorted(found)]
    references = [one["bom-ref"] for one in libraries]
    application = _component(own, "application")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": application},
        "components": libraries,
        "dependencies": [
            {"ref": application["bom-ref"], "dependsOn": sorted(_required(own, found))},
            *(
                {"ref": ref, "dependsOn": sorted(_required(one, found))}
                for ref, one in zip(references, (found[n] for n in sorted(found)), strict=True)
            ),
        ],
    }


def _name(one: Distribution) -> str:
    """As package indexes write it."""
    return re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower()


def _reference(one: Distribution) -> str:
    return f"pkg:pypi/{_name(one)}@{one.version}"


def _component(one: Distribution, kind: str) -> dict[str, Any]:
    reference = _reference(one)
    component = {
        "type": kind,
        "bom-ref": reference,
        "name": _name(one),
        "version": one.version,
        "purl": reference,
    }
    licences = list(_licences(one))
    return component | ({"licenses": licences} if licences else {})


def _licences(one: Distribution) -> Iterator[dict[str, Any]]:
    """An SPDX expression if there is one, else what the author calls it, in a few words."""
    fields = one.metadata
    for expression in fields.get_all("License-Expression", []):
        yield {"expression": expression}
        return
    classes = [c for c in fields.get_all("Classifier", []) if c.startswith("License :: ")]
    names = [c.rpartition(" :: ")[2] for c in classes if not c.endswith("OSI Approved")]
    said = [text.strip() for text in fields.get_all("License", [])]
    if not names:
        names = [text for text in said if text and "\n" not in text]
    for name in sorted(set(names)):
        yield {"license": {"name": name}}


def _required(one: Distribution, found: dict[str, Distribution]) -> set[str]:
    """What it names that is installed here."""
    heads = (re.match(r"[A-Za-z0-9._-]+", text) for text in one.requires or ())
    names = {re.sub(r"[-_.]+", "-", head.group()).lower() for head in heads if head}
    return {_reference(found[name]) for name in names & found.keys()}


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=1)
    sys.stdout.write("\n")
