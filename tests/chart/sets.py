"""What the chart is rendered with: sets of values, versions of Helm and of Kubernetes."""

from typing import Any

REPOSITORY = "registry.example.com/lora-sidecar"
HOME = "lora-sidecar"
HELMS = ("3", "4")
KUBERNETES = ("1.31.0", "1.34.4", "1.37.1")
"""The oldest that is served, the one that tests run, the newest whose schemas there are."""
TESTED = KUBERNETES[1]
APIS = ("monitoring.coreos.com/v1", "cert-manager.io/v1")
EVERYTHING: dict[str, Any] = {
    "image": {"repository": REPOSITORY, "digest": "sha256:" + "0" * 64},
    "imagePullSecrets": ["ours"],
    "agent": {"pullSecrets": ["theirs"], "namespaces": ["ml", "research"], "allNamespaces": False},
    "injector": {
        "failurePolicy": "Ignore",
        "port": 10250,
        "hostNetwork": True,
        "certManager": {"enabled": True},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
    },
    "aggregator": {"replicas": 1, "takeover": False},
    "crds": {"adapters": True},
    "networkPolicy": {"enabled": True},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "serviceMonitor": {"enabled": True},
    "dashboards": {"enabled": True},
    "commonLabels": {"team": "ml"},
}
SETS: dict[str, dict[str, Any]] = {
    "default": {},
    "everything": EVERYTHING,
    "some-namespaces": {"agent": {"namespaces": ["ml", "research"]}},
    "issuer": {
        "injector": {
            "certManager": {"enabled": True, "issuerRef": {"kind": "ClusterIssuer", "name": "ours"}}
        }
    },
    "least": {
        "aggregator": {"replicas": 1, "takeover": False},
        "injector": {"replicas": 1, "excludedNamespaces": []},
        "crds": {"reports": False},
        "uninstall": {"release": False},
        "podMonitor": {"enabled": True},
    },
}
"""Each has its golden file."""
