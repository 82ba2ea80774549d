"""The lean import, each in a process of its own, as an import cannot be undone."""

import subprocess
import sys


def run(*lines: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(("import sys", *lines))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_client_loads_less_than_half_of_what_an_ordinary_import_does() -> None:
    lean = int(run("import sidecar.kube.informer", "print(len(sys.modules))")[0])
    whole = int(run("import kubernetes_asyncio", "print(len(sys.modules))")[0])
    assert lean < 600
    assert lean < whole / 2


def test_it_is_the_library_that_reads_the_credentials() -> None:
    said = run(
        "from sidecar.kube import credentials",
        "print(credentials._Configuration.__module__, credentials._in_cluster.__name__)",
    )
    assert said == [
        "kubernetes_asyncio.client.configuration",
        "kubernetes_asyncio.config.incluster_config",
    ]


def test_two_lean_imports_share_their_modules() -> None:
    said = run(
        "from sidecar.kube.lean import kubernetes",
        "one = kubernetes('client.configuration').Configuration",
        "print(kubernetes('config.kube_config').Configuration is one)",
        "print(kubernetes('config.incluster_config').Configuration is one)",
    )
    assert said == ["True", "True"]


def test_an_ordinary_import_afterwards_still_gets_the_whole_library() -> None:
    said = run(
        "import sidecar.kube.credentials",
        "print('kubernetes_asyncio' in sys.modules)",
        "import kubernetes_asyncio",
        "print(kubernetes_asyncio.client.CoreV1Api.__name__)",
    )
    assert said == ["False", "CoreV1Api"]


def test_a_library_that_is_there_already_is_used_as_it_is() -> None:
    said = run(
        "from kubernetes_asyncio.client import Configuration",
        "from sidecar.kube.lean import kubernetes",
        "print(kubernetes('client.configuration').Configuration is Configuration)",
    )
    assert said == ["True"]


def test_another_layout_is_imported_whole() -> None:
    said = run(
        "from sidecar.kube import lean",
        "def changed(name): raise ImportError(f'no package {name}')",
        "lean._hollow = changed",
        "module = lean.kubernetes('config.incluster_config')",
        "import kubernetes_asyncio",
        "print(module is kubernetes_asyncio.config.incluster_config)",
    )
    assert said == ["True"]


def test_an_attribute_that_moved_leaves_no_hollow_package_behind() -> None:
    said = run(
        "from sidecar.kube import lean",
        "hollow = lean._hollow",
        "def short(name):",
        "    made = hollow(name)",
        "    made.__path__ = []",
        "    return made",
        "lean._hollow = short",
        "lean.kubernetes('config.incluster_config')",
        "import kubernetes_asyncio",
        "print(kubernetes_asyncio.client.CoreV1Api.__name__)",
    )
    assert said == ["CoreV1Api"]
