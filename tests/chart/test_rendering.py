"""The chart's text: as written down in golden/, with each Helm and for each Kubernetes, and true to its schemas."""

from typing import Any

import kubernetes_validate
import pytest

from tests.chart.conftest import golden, named, objects, rendered
from tests.chart.sets import APIS, HELMS, KUBERNETES, SETS, TESTED

FOREIGN = {"Certificate", "Issuer", "PodMonitor", "ServiceMonitor"}
"""Kinds of others, for which Kubernetes has no schemas."""


@pytest.mark.parametrize("name", SETS)
def test_it_renders_as_written_down(name: str) -> None:
    assert rendered(SETS[name], apis=APIS) == golden(name).read_text()


@pytest.mark.field(78)
def test_it_renders_the_same_each_time() -> None:
    assert rendered() == rendered()


@pytest.mark.parametrize("kubernetes", KUBERNETES)
@pytest.mark.parametrize("generation", HELMS)
@pytest.mark.parametrize("name", SETS)
def test_helm_and_kubernetes_make_no_difference(
    name: str, generation: str, kubernetes: str
) -> None:
    text = rendered(SETS[name], apis=APIS, generation=generation, kubernetes=kubernetes)
    assert named(text.replace(f"v{kubernetes}", f"v{TESTED}")) == named(golden(name).read_text())


@pytest.mark.parametrize("kubernetes", KUBERNETES)
@pytest.mark.parametrize("name", SETS)
def test_each_object_is_as_the_schemas_of_that_kubernetes_want_it(
    name: str, kubernetes: str
) -> None:
    checked: set[str] = set()
    for one in objects(rendered(SETS[name], apis=APIS, kubernetes=kubernetes)):
        if one["kind"] not in FOREIGN:
            version = kubernetes_validate.validate(one, kubernetes, strict=True)
            assert kubernetes.startswith(f"{version}.")
            checked.add(one["kind"])
    assert checked >= {"Deployment", "ClusterRole", "MutatingWebhookConfiguration"}


def test_what_the_schemas_do_not_know_is_noticed() -> None:
    (service,) = (one for one in objects(rendered()) if one["kind"] == "Service")
    service["spec"]["prots"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(service, KUBERNETES[0], strict=True)


@pytest.mark.parametrize("kind", sorted(FOREIGN))
def test_kinds_of_others_are_rendered_only_where_they_are_asked_for(kind: str) -> None:
    def kinds(values: Any) -> set[str]:
        return {one["kind"] for one in objects(rendered(values, apis=APIS))}

    assert kind not in kinds({})
    assert kind in kinds(SETS["everything"])
