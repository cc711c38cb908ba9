"""Writes what is in the image as CycloneDX: `python sbom.py ENVIRONMENT_PYTHON VERSION FILE`.

Runs while the image is built, in an environment of its own that has cyclonedx-bom. Listed is what
is installed, not what was asked for: the packages of the environment, those that the base's Python
brings, Python itself, and the packages of the base's Debian.
"""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

Component = dict[str, Any]

_DEBIAN_FORMAT: Final = "${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\n"


def environment(python: str) -> dict[str, Any]:
    """Return the bill of materials of one Python environment."""
    program = Path(sys.executable).with_name("cyclonedx-py")
    command = [str(program), "environment", "--output-reproducible", "--no-validate", python]
    return dict(json.loads(_printed(*command)))


def located(bill: dict[str, Any], prefix: str) -> tuple[list[Component], list[dict[str, Any]]]:
    """Return components and dependencies; the same package may be in two places.

    Args:
        bill: Of one environment.
        prefix: Where that is.
    """
    root = bill.get("metadata", {}).get("component", {}).get("bom-ref")
    components = [
        its
        | {
            "bom-ref": f"{prefix} {its['bom-ref']}",
            "evidence": {"occurrences": [{"location": prefix}]},
        }
        for its in bill.get("components", [])
    ]
    dependencies = [
        {"ref": f"{prefix} {its['ref']}"}
        | {"dependsOn": [f"{prefix} {ref}" for ref in its.get("dependsOn", [])]}
        for its in bill.get("dependencies", [])
        if its["ref"] != root
    ]
    return components, dependencies


def debian_packages() -> Iterator[Component]:
    """Yield Debian and each of its packages that is installed."""
    release = platform.freedesktop_os_release()
    name, version = release["ID"], release.get("VERSION_ID", "")
    yield {"type": "operating-system", "bom-ref": name, "name": name, "version": version}
    listed = _printed("dpkg-query", "--show", f"--showformat={_DEBIAN_FORMAT}")
    for line in listed.splitlines():
        status, package, its_version, architecture = line.split("\t")
        if status == "installed":
            qualifiers = {"arch": architecture, "distro": f"{name}-{version}"}
            url = PackageURL("deb", name, package, its_version, qualifiers).to_string()
            yield {
                "type": "library",
                "bom-ref": url,
                "name": package,
                "version": its_version,
                "purl": url,
            }


def python_itself(python: str) -> Component:
    """Return the interpreter as a component."""
    version = _printed(python, "-c", "import platform; print(platform.python_version())").strip()
    url = PackageURL("generic", None, "python", version).to_string()
    return {"type": "platform", "bom-ref": url, "name": "python", "version": version, "purl": url}


def bill_of(python: str, version: str) -> dict[str, Any]:
    """Return the bill of materials of this image.

    Args:
        python: The interpreter of our environment.
        version: Of the service.
    """
    base, prefix, base_prefix = _printed(
        python, "-c", "import sys; print(sys._base_executable, sys.prefix, sys.base_prefix)"
    ).split()
    bill = environment(python)
    ours, needs = located(bill, prefix)
    theirs, their_needs = located(environment(base), base_prefix)
    bill["metadata"]["component"] = {
        "type": "container",
        "bom-ref": "chatlane image",
        "name": "chatlane",
        "version": version,
    }
    bill["components"] = [*ours, *theirs, python_itself(python), *debian_packages()]
    bill["dependencies"] = [*needs, *their_needs]
    return bill


def _printed(*command: str) -> str:
    # The commands are those above; nothing of them comes from outside the build.
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main(python: str, version: str, target: str) -> int:
    """Write the file and return the exit code; what the standard does not allow is not written."""
    text = json.dumps(bill_of(python, version), indent=1, ensure_ascii=False) + "\n"
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.stderr.write(f"not CycloneDX 1.6: {problem}\n")
        return 1
    Path(target).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
