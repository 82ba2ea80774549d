"""Imports single modules of kubernetes_asyncio without running its packages' `__init__`.

Those import every API and model of Kubernetes: 970 modules and 38 MiB more than aiohttp alone (36.1), which is
most of what an agent may weigh. Here the packages are put into `sys.modules` by name and place only, what is
asked for is imported beneath them, and `sys.modules` is left as it was, so that whoever imports the library
in the ordinary way still gets all of it. Where it is there already, or no longer has this layout, the
ordinary import is the answer. What is used of it is for `credentials` to say.
"""

import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final

log = logging.getLogger(__name__)

_LIBRARY: Final = "kubernetes_asyncio"
_kept: Final[dict[str, ModuleType]] = {}


def kubernetes(name: str) -> ModuleType:
    """Returns the library's module of this name, e.g. `config.incluster_config`.

    Raises ImportError where the library has no such module at all.
    """
    full = f"{_LIBRARY}.{name}"
    if _LIBRARY in sys.modules:
        return importlib.import_module(full)
    try:
        with _hollow_packages():
            return importlib.import_module(full)
    except Exception as error:  # noqa: BLE001 - whatever a new layout breaks, the plain import is the answer
        log.debug("kubernetes_asyncio is imported whole: %s", error)
        return importlib.import_module(full)


@contextmanager
def _hollow_packages() -> Iterator[None]:
    try:
        sys.modules.update(_kept)
        if not _kept:
            _hollow(_LIBRARY)
            client = _hollow(f"{_LIBRARY}.client")
            configuration = importlib.import_module(f"{_LIBRARY}.client.configuration")
            # What `config` expects to find in `client`; of the second it uses the name only.
            client.__dict__.update(Configuration=configuration.Configuration, ApiClient=None)
            _hollow(f"{_LIBRARY}.config")
        yield
        _kept.update({name: sys.modules[name] for name in _ours()})
    finally:
        for name in _ours():
            del sys.modules[name]


def _hollow(name: str) -> ModuleType:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"{name} is no package")
    sys.modules[name] = importlib.util.module_from_spec(spec)
    return sys.modules[name]


def _ours() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == _LIBRARY]
