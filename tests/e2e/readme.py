"""The README's commands, to be run as they stand: what its readers type is what is tested."""

import re

from tests.e2e.cluster import REPOSITORY, ROOT, Cluster

SECTION = "## Installing"
INSTALL = "helm install"
OPT_IN = "kubectl --namespace ml patch inferenceservice"
LOAD = "kubectl --namespace ml apply"
OUR_CRD = "kubectl apply --server-side"
TEST = "helm test"
UPGRADE = "helm upgrade"
UNINSTALL = "helm uninstall"
STEPS = (INSTALL, OPT_IN, LOAD, OUR_CRD, TEST, UPGRADE, UNINSTALL)
"""How the section's blocks begin, in their order."""


def blocks() -> list[str]:
    """The shell blocks of the section on installing, in their order."""
    text = (ROOT / "README.md").read_text()
    section = text[text.index(SECTION) :].partition("\n## ")[0]
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def block(beginning: str) -> str:
    """The one block that begins with these words."""
    (found,) = [one for one in blocks() if one.startswith(beginning)]
    return found


def run(cluster: Cluster, beginning: str) -> str:
    """Run a block; on somebody's cluster with the image that is within its reach."""
    script = block(beginning)
    if not cluster.node:
        repository, _, tag = cluster.ours.rpartition(":")
        script = script.replace(f"={REPOSITORY}", f"={repository} --set image.tag={tag}")
    return cluster.shell(script)
