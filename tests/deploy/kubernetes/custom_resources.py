"""Custom resources, checked by the definitions that their operators bring."""

import json
from functools import cache
from pathlib import Path
from typing import Final

import jsonschema

from tests.deploy.kubernetes.manifests import Manifest

DEFINITIONS: Final = Path(__file__).parents[1] / "crds"


def is_custom(manifest: Manifest) -> bool:
    """Return whether an operator brings the resource, not Kubernetes."""
    group = manifest["apiVersion"].partition("/")[0]
    return "." in group and not group.endswith("k8s.io")


def validate(manifest: Manifest) -> None:
    """Check an object by the schema of its definition; a field that is not in it is refused.

    Rules in CEL are not evaluated: `make kube-api` does that.

    Raises:
        KeyError: There is no definition of the kind and version.
        jsonschema.ValidationError: The API would refuse the object, or drop a field of it.
    """
    _validators()[manifest["apiVersion"], manifest["kind"]].validate(manifest)


@cache
def _validators() -> dict[tuple[str, str], jsonschema.Draft202012Validator]:
    found = {}
    for path in DEFINITIONS.glob("*.json"):
        spec = json.loads(path.read_text(), object_hook=_without_other_fields)["spec"]
        for version in spec["versions"]:
            key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
            found[key] = jsonschema.Draft202012Validator(version["schema"]["openAPIV3Schema"])
    return found


def _without_other_fields(part: Manifest) -> Manifest:
    """Return a part of a schema that refuses fields which it does not name."""
    if part.get("type") == "object" and isinstance(part.get("properties"), dict):
        open_fields = part.get("x-kubernetes-preserve-unknown-fields", False)
        part.setdefault("additionalProperties", open_fields)
    return part
