"""One contract, two engines: what the agent relies on, asked of the simulated SGLang and of the real one.

    pytest tests/conformance                  the simulated one, in seconds
    pytest tests/conformance --engine=real    the real one, installed first where it is not yet there (or ENGINE=real)

A real start takes half a minute, so one process serves all tests of a module that need its set of flags (all modules,
where there are none); each test uses handles of its own, and what it loaded is unloaded after it.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sidecar.agent.keys import Certificate, Keys
from sidecar.agent.sglang import Engine
from tests.conformance.gallery import Gallery
from tests.conformance.subject import Subject
from tests.fakes.sglang.options import since
from tests.rig.cache import say
from tests.rig.engines import EngineProcess, Kind
from tests.rig.errors import RigError
from tests.rig.pki import Authority
from tests.rig.sglang import install

API_KEY, ADMIN_KEY = "key-for-reads", "key-for-changes"
STARTUP = "loaded-at-start"
TLS_SINCE = "0.5.10"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--engine", choices=["simulated", "real"], help="which SGLang is asked")
    group.addoption("--engine-version", choices=install.versions(), help="its version")


def _kind(config: pytest.Config) -> Kind:
    # The option exists only where this file was loaded before the command line was read.
    return config.getoption("--engine", None) or os.environ.get("ENGINE") or "simulated"


def _version(config: pytest.Config) -> str:
    told = config.getoption("--engine-version", None) or os.environ.get("ENGINE_VERSION")
    return told or install.VERSION


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        kind = _kind(metafunc.config)
        marks = [pytest.mark.real_engine, pytest.mark.timeout(600)] if kind == "real" else []
        metafunc.parametrize("kind", [pytest.param(kind, marks=marks)], scope="session")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install before the first test, where progress can be seen and no test's time-out counts."""
    wanted = any(item.get_closest_marker("real_engine") for item in session.items)
    if not wanted or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            install.install(_version(session.config))
        except RigError as error:
            say(str(error))  # and the tests that need it will fail, saying it again


@pytest.fixture(scope="session")
def version(request: pytest.FixtureRequest) -> str:
    return _version(request.config)


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    return Gallery(tmp_path_factory.mktemp("adapters"))


@pytest.fixture(scope="session")
def plain_process(
    kind: Kind, version: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineProcess]:
    with EngineProcess.start(kind, tmp_path_factory.mktemp("plain"), version=version) as process:
        yield process


@pytest.fixture
async def plain(plain_process: EngineProcess) -> AsyncIterator[Subject]:
    """An engine as LLMKube would start it."""
    async with Subject.of(plain_process) as subject:
        yield subject


@pytest.fixture(scope="module")
def limited_process(
    kind: Kind, version: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineProcess]:
    flags = ["--max-loaded-loras", "3"]
    folder = tmp_path_factory.mktemp("limited")
    with EngineProcess.start(kind, folder, version=version, extra_args=flags) as process:
        yield process


@pytest.fixture
async def limited(limited_process: EngineProcess) -> AsyncIterator[Subject]:
    """An engine that holds three adapters at most."""
    async with Subject.of(limited_process) as subject:
        yield subject


@pytest.fixture(scope="module")
def without_lora_process(
    kind: Kind, version: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineProcess]:
    folder = tmp_path_factory.mktemp("without-lora")
    with EngineProcess.start(kind, folder, version=version, lora=False) as process:
        yield process


@pytest.fixture
async def without_lora(without_lora_process: EngineProcess) -> AsyncIterator[Subject]:
    """An engine that was started without LoRA."""
    async with Subject.of(without_lora_process) as subject:
        yield subject


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The engine's certificate and its key."""
    return Authority(tmp_path_factory.mktemp("pki")).issue("engine", user="engine")


@pytest.fixture(scope="module")
def guarded_process(
    kind: Kind,
    version: str,
    certificate: tuple[Path, Path],
    gallery: Gallery,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[EngineProcess]:
    cert, key = map(str, certificate)
    flags = ["--api-key", API_KEY, "--admin-api-key", ADMIN_KEY]
    if since(version, TLS_SINCE):
        flags += ["--ssl-certfile", cert, "--ssl-keyfile", key]
    flags += ["--lora-paths", f"{STARTUP}={gallery.a}"]
    folder = tmp_path_factory.mktemp("guarded")
    with EngineProcess.start(
        kind, folder, version=version, host="::1", extra_args=flags
    ) as process:
        yield process


@pytest.fixture
async def guarded(
    guarded_process: EngineProcess, certificate: tuple[Path, Path]
) -> AsyncIterator[Subject]:
    """An engine with both keys, a certificate and an adapter among its arguments, on IPv6 only."""
    client = Engine(
        port=guarded_process.port,
        scheme=guarded_process.scheme,
        keys=Keys(api_value=API_KEY, admin_value=ADMIN_KEY),
        certificate=Certificate(certificate[0]),
    )
    async with Subject.of(guarded_process, client, ADMIN_KEY, keep={STARTUP}) as subject:
        yield subject


@pytest.fixture
def mortal(kind: Kind, version: str, tmp_path: Path) -> Iterator[EngineProcess]:
    """An engine of the test's own, which is starting; it may be killed."""
    with EngineProcess.start(kind, tmp_path, version=version, wait=False) as process:
        yield process
