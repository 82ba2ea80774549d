"""The chart's verbs: lint it, pack it, print it as plain manifests, and write the goldens anew.

python -m tests.chart lint
python -m tests.chart package
python -m tests.chart manifests --image REPOSITORY[:TAG] [--namespace NAME] [--kubernetes VERSION]
python -m tests.chart golden
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tests.chart.conftest import golden, rendered
from tests.chart.sets import APIS, HELMS, HOME, REPOSITORY, SETS, TESTED
from tests.rig.cache import say
from tests.rig.errors import RigError
from tests.rig.helm import helm
from tests.rig.install import CHART

ROOT = CHART.parents[1]
DIST = ROOT / "dist"
HEAD = """\
# lora-sidecar as plain manifests, for `kubectl apply --server-side -f`.
# Before you delete them, let every LoRAAdapter go:
#   kubectl -n {namespace} exec deploy/lora-sidecar-aggregator -- python -m sidecar.aggregator release
apiVersion: v1
kind: Namespace
metadata: {{name: {namespace}}}
"""


def main() -> int:
    """Do what is asked; answer the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chart", description=__doc__)
    parser.add_argument("verb", choices=["lint", "package", "manifests", "golden"])
    parser.add_argument("--image", default="", help="where the image is, with its tag")
    parser.add_argument("--namespace", default=HOME)
    parser.add_argument("--kubernetes", default=TESTED, help="the version that they are for")
    options = parser.parse_args()
    try:
        return {"lint": _lint, "package": _package, "golden": _golden}.get(
            options.verb, lambda: _manifests(options.image, options.namespace, options.kubernetes)
        )()
    except (RigError, AssertionError) as error:
        say(str(error).strip())
        return 1


def _lint() -> int:
    for generation in HELMS:
        command = [str(helm(generation)), "lint", "--strict", "--quiet", str(CHART)]
        done = subprocess.run([*command, "--set", f"image.repository={REPOSITORY}"], check=False)
        if done.returncode:
            return done.returncode
    return 0


def _package() -> int:
    command = [str(helm()), "package", str(CHART), "--destination", str(DIST)]
    return subprocess.run(command, check=False).returncode


def bundle(image: str, namespace: str = HOME, kubernetes: str = TESTED) -> str:
    """Everything as plain manifests. RigError where `image`, repository[:tag], is empty."""
    repository, _, tag = (
        image.rpartition(":") if ":" in image.rpartition("/")[2] else (image, "", "")
    )
    if not repository:
        raise RigError(
            "say where the image is: make manifests IMAGE=registry.example.com/lora-sidecar:0.1.0"
        )
    values = {"image": {"repository": repository, "tag": tag}, "uninstall": {"release": False}}
    text = rendered(values, namespace=namespace, kubernetes=kubernetes, hooks=False)
    return HEAD.format(namespace=namespace) + text


def _manifests(image: str, namespace: str, kubernetes: str) -> int:
    text = bundle(image, namespace, kubernetes)
    DIST.mkdir(exist_ok=True)
    file = DIST / "lora-sidecar.yaml"
    file.write_text(text)
    sys.stdout.write(
        f"{file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}\n"
    )
    return 0


def _golden() -> int:
    for name, values in SETS.items():
        golden(name).write_text(rendered(values, apis=APIS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
