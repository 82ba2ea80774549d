"""The annotations: each declared once, its default good, and no value too odd to be judged."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.api import names
from sidecar.api.annotations import ANNOTATIONS, MARKS, ON_ADAPTERS, Annotation, seconds

BY_NAME = {annotation.name: annotation for annotation in ANNOTATIONS}


def test_these_are_the_annotations_of_a_pod() -> None:
    assert list(BY_NAME) == [
        "inject",
        "service",
        "container",
        "engine-port",
        "api-key-secret",
        "admin-key-secret",
        "adapter-namespaces",
        "mode",
        "readiness",
        "readiness-timeout",
        "trust-path",
        "reload",
        "log-level",
        "cpu-request",
        "memory-request",
        "cpu-limit",
        "memory-limit",
        "image",
    ]
    assert len(BY_NAME) == len(ANNOTATIONS)


@pytest.mark.parametrize("annotation", [*ANNOTATIONS, *ON_ADAPTERS], ids=lambda it: it.name)
def test_each_says_what_it_takes_and_what_it_is_for(annotation: Annotation) -> None:
    assert re.fullmatch(r"[A-Z\"S].*\.", annotation.sentence)
    assert annotation.values
    assert annotation.key == f"lora-sidecar.llmkube.dev/{annotation.name}"


def test_the_names_that_code_asks_for_are_declared() -> None:
    pods = {annotation.key for annotation in ANNOTATIONS}
    assert pods >= {names.INJECT, names.SERVICE, names.CONTAINER}
    assert [annotation.key for annotation in ON_ADAPTERS] == [names.PINNED, names.RETRY]
    assert {mark.key for mark in MARKS} == {
        names.INJECTED_LABEL,
        names.INJECTED_VERSION,
        names.INJECTED_CONTAINER,
        names.SKIPPED,
    }


@pytest.mark.parametrize(
    "name",
    [
        "adapter-namespaces",
        "mode",
        "readiness",
        "readiness-timeout",
        "trust-path",
        "reload",
        "log-level",
        "cpu-request",
        "memory-request",
        "cpu-limit",
        "memory-limit",
    ],
)
def test_a_default_is_a_good_value(name: str) -> None:
    assert BY_NAME[name].check(BY_NAME[name].default) is None


GOOD = {
    "inject": ["true", "false"],
    "service": ["llama", "llama-3.1-8b"],
    "container": ["sglang", "a"],
    "engine-port": ["1", "30000", "65535"],
    "api-key-secret": ["keys/api", "my.keys/API_KEY", "k/.a-b"],
    "adapter-namespaces": ["*", "a", "a,b"],
    "mode": ["auto", "native", "container"],
    "readiness-timeout": ["90s", "10m", "1h30m"],
    "cpu-request": ["10m", "1", "0.5", "2k"],
    "memory-limit": ["64Mi", "1.5Gi", "128974848", "129M", "123456789"],
    "image": ["ghcr.io/org/lora-sidecar:1.2", "localhost:5000/a@sha256:0123"],
}

BAD = {
    "inject": ["True", "yes", "1", "", " true"],
    "service": ["", "Llama", "a b", "a/b", "-a", "a" * 64],
    "container": ["", "a_b", "SGLang"],
    "engine-port": ["", "0", "65536", "http", "-1", "1.5", "٣", "1" * 5000, " 80"],
    "api-key-secret": ["", "keys", "/api", "keys/", "a/b/c", "Keys/api", "keys/a b", "keys/ä"],
    "admin-key-secret": ["../../etc/passwd"],
    "adapter-namespaces": ["", "  "],
    "mode": ["Native", ""],
    "readiness-timeout": ["", "10", "10 m", "m", "-1s", "1.5h", "0s", "1d", "9" * 400 + "s"],
    "reload": ["true", ""],
    "log-level": ["trace", "INFO"],
    "cpu-request": ["", "lots", "-1", "0", "10 m", "1e", "1/2", "m", "0m"],
    "memory-limit": ["64MB", "64mi", "", "Mi"],
    "image": ["", " ", "a b", "a\nb"],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in GOOD.items() for v in values])
def test_a_good_value_has_no_fault(name: str, value: str) -> None:
    assert BY_NAME[name].check(value) is None


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in BAD.items() for v in values])
def test_a_bad_value_is_told_in_few_words(name: str, value: str) -> None:
    problem = BY_NAME[name].check(value)
    assert problem
    assert len(problem) < 160
    assert problem.isprintable()


@settings(deadline=None)
@given(st.text() | st.from_regex(r"[0-9]+[hms]?[0-9]*(Mi|m)?", fullmatch=True))
def test_no_value_is_too_odd_to_be_judged(value: str) -> None:
    for annotation in (*ANNOTATIONS, *ON_ADAPTERS):
        annotation.check(value)


SECONDS = {
    "90s": 90.0,
    "10m": 600.0,
    "1h": 3600.0,
    "1h30m": 5400.0,
    "1h2m3s": 3723.0,
    "0s": 0.0,
    "2m2m": 240.0,
    "007s": 7.0,
    "": None,
    "5": None,
    "s": None,
    "1h30": None,
    "m10": None,
    "10 m": None,
    "1.5h": None,
    "-5s": None,
    "1H": None,
    "٣s": None,
    "100ms": None,
    "10m\n": None,
}


@pytest.mark.parametrize(("value", "answer"), SECONDS.items())
def test_durations_are_read_as_seconds(value: str, answer: float | None) -> None:
    assert seconds(value) == answer


@settings(deadline=None)
@given(st.integers(0, 10**8), st.integers(0, 10**8), st.integers(0, 10**8))
def test_every_duration_of_whole_hours_minutes_and_seconds_is_read(h: int, m: int, s: int) -> None:
    assert seconds(f"{h}h{m}m{s}s") == h * 3600 + m * 60 + s
