"""How the aggregator is started: its settings. That it then works is in test_real."""

from sidecar.aggregator.__main__ import parse


def test_the_command_line_wins_over_the_environment():
    env = {"LORA_SIDECAR_LOG_LEVEL": "warning", "LORA_SIDECAR_LISTEN_PORT": "8080"}
    settings, warnings = parse(["--log-level", "debug", "--kubeconfig", "/tmp/config"], env)
    assert (settings.log_level, settings.listen_port) == ("debug", 8080)
    assert (settings.kubeconfig, warnings) == ("/tmp/config", [])


def test_a_bad_setting_is_a_warning_and_its_default():
    settings, (warning,) = parse([], {"LORA_SIDECAR_LISTEN_PORT": "many"})
    assert settings.listen_port == 19494
    assert warning.startswith("LORA_SIDECAR_LISTEN_PORT: ")


def test_by_default_the_files_of_the_pod_say_where_the_api_server_is():
    settings, _ = parse([], {})
    assert settings.kubeconfig == ""
    assert settings.credentials == "/var/run/secrets/kubernetes.io/serviceaccount"
