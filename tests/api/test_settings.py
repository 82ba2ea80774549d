"""What one process writes into an environment another reads back; what makes no sense is told and not believed."""

import string
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.api.settings import ENV_PREFIX, SECRET_FIELDS, AgentSettings

DEFAULTS = AgentSettings()

TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40
)
LISTS = st.lists(
    TEXTS.map(str.strip).filter(bool) | st.sampled_from(["/a,b", "\\", ",", "/x\\,", "::1"])
).map(tuple)
SECONDS = st.floats(0.1, 1e9)
PORTS = st.integers(1, 65535)


def field_values() -> dict[str, st.SearchStrategy[Any]]:
    """A strategy for every field there is, by its type and limits."""
    special: Mapping[str, st.SearchStrategy[Any]] = {
        "engine_hosts": LISTS.filter(bool),
        "engine_port": PORTS,
        "listen_port": PORTS | st.just(0),
        "engine_scheme": st.sampled_from(["http", "https"]),
        "reload": st.sampled_from(["auto", "on-change", "never"]),
        "log_level": st.sampled_from(["debug", "info", "warning", "error"]),
    }
    by_type: Mapping[Any, st.SearchStrategy[Any]] = {
        str: TEXTS,
        bool: st.booleans(),
        float: SECONDS,
        tuple[str, ...]: LISTS,
    }
    return {
        name: special[name] if name in special else by_type[field.annotation]
        for name, field in AgentSettings.model_fields.items()
    }


@settings(deadline=None)
@given(st.fixed_dictionaries({}, optional=field_values()))
def test_what_is_written_is_read_back(values: dict[str, Any]) -> None:
    made = AgentSettings(**values)
    read, warnings = AgentSettings.from_env({"PATH": "/bin"} | made.to_env())
    assert read == made
    assert warnings == []


def test_defaults_are_not_written() -> None:
    assert DEFAULTS.to_env() == {}
    assert AgentSettings.from_env({}) == (DEFAULTS, [])


BAD = {
    "engine_port": ("http", "0", "65536", "80.5", "-1"),
    "engine_hosts": (",",),
    "engine_scheme": ("HTTPS", "ftp"),
    "trust_path": ("maybe", "2"),
    "reload": ("always",),
    "readiness_timeout": ("0", "-1", "soon", "nan", "inf"),
    "drift_interval": ("0", "nan", "inf"),
    "settle": ("-0.1", "nan", "inf"),
    "listen_port": ("-1", "65536"),
    "log_level": ("loud",),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
def test_a_bad_value_is_told_and_its_default_used(name: str, value: str) -> None:
    read, warnings = AgentSettings.from_env(
        {ENV_PREFIX + name.upper(): value, ENV_PREFIX + "SERVICE": "llama"}
    )
    assert read == DEFAULTS.model_copy(update={"service": "llama"})
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{ENV_PREFIX}{name.upper()}: ")
    assert repr(getattr(DEFAULTS, name)) in warnings[0]


def test_many_bad_values_are_all_told() -> None:
    env = {ENV_PREFIX + name.upper(): values[0] for name, values in BAD.items()}
    read, warnings = AgentSettings.from_env(env)
    assert read == DEFAULTS
    assert len(warnings) == len(BAD)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([ENV_PREFIX + name.upper() for name in AgentSettings.model_fields]),
        st.text(string.printable),
    )
)
def test_no_environment_stops_an_agent(env: dict[str, str]) -> None:
    AgentSettings.from_env(env)


@pytest.mark.parametrize("value", ["true", "True", "1", "yes", "on"])
def test_yes_can_be_said_in_many_ways(value: str) -> None:
    assert AgentSettings.from_env({"LORA_SIDECAR_READINESS": value})[0].readiness


def test_the_command_line_wins() -> None:
    env = {"LORA_SIDECAR_SERVICE": "a", "LORA_SIDECAR_POD_NAME": "p"}
    read, _ = AgentSettings.from_env(env, service="b")
    assert (read.service, read.pod_name) == ("b", "p")


def test_an_empty_value_is_as_good_as_none() -> None:
    env = {ENV_PREFIX + name.upper(): "" for name in AgentSettings.model_fields}
    read, _ = AgentSettings.from_env(env)
    assert read == DEFAULTS.model_copy(update={"adapter_namespaces": ()})


@pytest.mark.parametrize("value", ["", " ", ",", " , "])
def test_no_namespaces_are_the_pods_own_and_not_all(value: str) -> None:
    read, _ = AgentSettings.from_env(
        {"LORA_SIDECAR_ADAPTER_NAMESPACES": value, "LORA_SIDECAR_POD_NAMESPACE": "team-a"}
    )
    assert read.allowed_namespaces() == ("team-a",)


def test_lists_are_read_with_blanks_and_without() -> None:
    env = {"LORA_SIDECAR_ADAPTER_NAMESPACES": " team-a, team-b ,,"}
    assert AgentSettings.from_env(env)[0].adapter_namespaces == ("team-a", "team-b")


def test_a_mount_whose_path_holds_a_comma_is_one_mount() -> None:
    made = AgentSettings(shared=("/models,v2", "/adapters"))
    assert made.to_env() == {"LORA_SIDECAR_SHARED": r"/models\,v2,/adapters"}


def test_secrets_are_not_shown() -> None:
    made = AgentSettings(api_key="hush-1", admin_key="hush-2", service="llama")
    for shown in (repr(made), str(made), f"{made}"):
        assert "hush" not in shown
        assert "llama" in shown


def test_every_field_that_holds_a_secret_is_known_as_one() -> None:
    keys = {name for name in AgentSettings.model_fields if name.endswith("_key")}
    assert keys == SECRET_FIELDS
    assert all(not AgentSettings.model_fields[name].repr for name in SECRET_FIELDS)


def test_every_setting_says_what_it_is() -> None:
    for name, field in AgentSettings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name
