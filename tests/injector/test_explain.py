"""`python -m injector explain`: what it says of which manifest, in which form, and with which exit code."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from injector import explain
from sidecar.api import names
from tests.injector.pods import pod
from tests.rig.engines import ROOT


def run(tmp_path: Path, documents: list[Any], *options: str, **env: str) -> int:
    file = tmp_path / "given.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return explain.main([str(file), *options], env)


def maker(kind: str, **more: Any) -> dict[str, Any]:
    template = pod()
    del template["metadata"]["generateName"]
    way: dict[str, Any] = {"template": template}
    if kind == "CronJob":
        way = {"jobTemplate": {"spec": way}}
    return {"kind": kind, "metadata": {"name": "chat", "namespace": "team"}, "spec": way} | more


def one_pod() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", **pod()}


@pytest.mark.field(90)
@pytest.mark.parametrize(
    "kind", ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"]
)
def test_what_makes_pods_is_explained_by_them(tmp_path, capsys, kind) -> None:
    assert run(tmp_path, [maker(kind)]) == explain.GIVEN
    out = capsys.readouterr().out
    assert out.startswith(f"{kind} chat in team: inject (injected): The agent is added beside")
    assert "+  - name: lora-sidecar" in out


def test_an_inference_service_is_explained_by_the_pod_that_llmkube_makes(tmp_path, capsys) -> None:
    spec = {
        "runtime": "sglang",
        "podAnnotations": {names.INJECT: "true"},
        "endpoint": {"port": 31000},
        "extraArgs": ["--enable-lora"],
        "extraVolumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}],
        "extraVolumeMounts": [{"name": "a", "mountPath": "/adapters"}],
    }
    service = {"kind": "InferenceService", "metadata": {"name": "chat"}, "spec": spec}
    assert run(tmp_path, [service], "-o", "json", "-n", "team") == explain.GIVEN
    [told] = json.loads(capsys.readouterr().out)
    assert (told["object"], told["namespace"]) == ("InferenceService chat", "team")
    env = {e["name"]: e.get("value") for e in told["pod"]["spec"]["initContainers"][0]["env"]}
    assert env["LORA_SIDECAR_ENGINE_PORT"] == "31000"
    assert env["LORA_SIDECAR_SHARED"] == "/adapters"
    assert env["LORA_SIDECAR_SERVICE"] == "chat"


def test_lists_and_several_documents_are_gone_through(tmp_path, capsys) -> None:
    listed = {"kind": "List", "items": [one_pod(), {"kind": "Service", "metadata": {"name": "s"}}]}
    pods = {"kind": "PodList", "items": [pod()]}
    assert run(tmp_path, [listed, None, maker("Deployment"), pods], "-o", "json") == explain.GIVEN
    said = capsys.readouterr()
    assert [one["object"] for one in json.loads(said.out)] == [
        "Pod chat-5d9f-",
        "Deployment chat",
        "Pod chat-5d9f-",
    ]
    assert "Service s: makes no pods" in said.err


def test_a_pod_that_is_not_given_the_agent_ends_with_1_and_says_why(tmp_path, capsys) -> None:
    skipped = one_pod()
    skipped["spec"]["containers"] = [{"name": "web"}]
    assert run(tmp_path, [one_pod(), skipped]) == explain.NOT_GIVEN
    out = capsys.readouterr().out
    assert "skip (no-engine): No container launches SGLang" in out
    assert "+    lora-sidecar.llmkube.dev/skipped: no-engine" in out


@pytest.mark.field(90)
def test_a_wish_that_is_written_in_the_wrong_place_is_found(tmp_path, capsys) -> None:
    wish = {names.INJECT: "true"}
    deployment = maker("Deployment")
    deployment["metadata"]["annotations"] = wish
    del deployment["spec"]["template"]["metadata"]["annotations"]
    service = {
        "kind": "InferenceService",
        "metadata": {"name": "chat", "annotations": wish},
        "spec": {"runtime": "sglang"},
    }
    label = one_pod()
    label["metadata"] = {"labels": wish}
    assert run(tmp_path, [deployment, service, label]) == explain.NOT_GIVEN
    out = capsys.readouterr().out
    assert "stands on the Deployment itself; it belongs in its pod template" in out
    assert "stands on the InferenceService itself; it belongs in spec.podAnnotations" in out
    assert "is a label of the pod; it must be an annotation" in out


def test_one_that_has_it_is_fine(tmp_path, capsys) -> None:
    assert run(tmp_path, [one_pod()], "-o", "yaml") == explain.GIVEN
    said = capsys.readouterr()
    assert "inject (injected)" in said.err
    patched = yaml.safe_load(said.out)
    assert run(tmp_path, [patched]) == explain.GIVEN
    assert "skip (already-injected)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "just words",
        "[]",
        "",
        "kind: Service\nmetadata: {name: s}",
        "kind: Deployment\nspec: 1",
        "kind: Pod\nmetadata: 1",
        "kind: Pod\nmetadata: {annotations: {lora-sidecar.llmkube.dev/inject: 'true'}}\nspec: {containers: {a: 1}}",
        "\x00",
        "{" * 5000,
        '{"kind": "Pod", "spec": ' + "[" * 700 + "]" * 700 + "}",
        "kind: Pod\nmetadata: {annotations: 3}",
    ],
)
def test_what_makes_no_pods_ends_with_2_and_one_line(tmp_path, capsys, text) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(text)
    assert explain.main([str(file)], {}) in (explain.UNREADABLE, explain.NOT_GIVEN)
    said = capsys.readouterr()
    assert (said.out + said.err).count("\n") <= 2
    assert "Traceback" not in said.err


def test_a_file_that_is_not_there_ends_with_2(tmp_path, capsys) -> None:
    assert explain.main([str(tmp_path / "gone.yaml")], {}) == explain.UNREADABLE
    assert "gone.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["diff", "yaml", "json"])
@pytest.mark.parametrize("shell", [False, True])
@pytest.mark.parametrize("inject", ["true", "bad"])
def test_no_form_shows_a_key(tmp_path, capsys, form, shell, inject) -> None:
    given = one_pod()
    given["metadata"]["annotations"][names.INJECT] = inject
    [engine] = given["spec"]["containers"]
    engine["env"] = [{"name": "KEY", "value": "hush-env"}]
    keys = ["--api-key", "hush'$$\"one", "--admin-api-key=$(KEY)"]
    if shell:
        keys = ["--api-key", "'hush-$one'", "--admin-api-key", "$KEY"]
        engine |= {"command": ["sh", "-c"]}
        engine["args"] = [f"exec python3 -m sglang.launch_server {' '.join(keys)}"]
    else:
        engine["args"] += keys
    run(tmp_path, [given], "-o", form)
    said = capsys.readouterr()
    assert "hush" not in said.out + said.err
    assert explain.MASK in said.out or inject == "bad"


def test_a_key_that_a_script_quotes_oddly_is_not_shown(tmp_path, capsys) -> None:
    given = one_pod()
    [engine] = given["spec"]["containers"]
    engine["command"] = ["sh", "-c", "exec sglang serve --port 1 --api-key hu\"sh\"'er' --tp 1"]
    del engine["args"]
    run(tmp_path, [given], "-o", "yaml")
    said = capsys.readouterr()
    assert 'hu"' not in said.out
    assert "husher" not in said.out


def test_a_broken_file_is_not_quoted(tmp_path, capsys) -> None:
    file = tmp_path / "given.yaml"
    file.write_text("kind: Pod\nargs: ['--api-key', 'hush'\n--- : [")
    assert explain.main([str(file)], {}) == explain.UNREADABLE
    assert "hush" not in capsys.readouterr().err


def test_the_webhooks_settings_count(tmp_path, capsys) -> None:
    env = {"LORA_SIDECAR_IMAGE": "other:2", "LORA_SIDECAR_KUBERNETES_VERSION": "v1.28.3"}
    run(tmp_path, [one_pod()], "-o", "yaml", **env)
    said = capsys.readouterr()
    agent = yaml.safe_load(said.out)["spec"]["containers"][-1]
    assert agent["image"] == "other:2"
    assert "as an ordinary container" in said.err


def test_as_a_command_it_reads_standard_input_and_needs_no_cluster() -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LORA_SIDECAR_", "KUBE"))}
    done = subprocess.run(
        [sys.executable, "-m", "injector", "explain", "-", "-o", "json"],
        input=json.dumps(one_pod()),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=env,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.load(io.StringIO(done.stdout))[0]["decision"] == "inject"
