"""How values look on the wire."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sidecar.api.adapter import LoRAAdapter
from sidecar.api.report import LoRAPodStatus
from sidecar.api.wire import cut, faults, to_wire_time

CUT = {
    "a short text stays": ("it fails", 10, "it fails"),
    "a text of just that length stays": ("abcdef", 6, "abcdef"),
    "a longer one ends in dots": ("abcdefg", 6, "abc..."),
    "bytes are counted, not letters": ("ääää", 7, "ää..."),
    "no letter is cut in two": ("ääää", 6, "ä..."),
    "nor one of four bytes": ("😀😀", 7, "😀..."),
    "lines become one": ("a\n\n  b\tc\r\n", 20, "a b c"),
    "so do those of Unicode": ("a\u2028b\u0085c", 20, "a b c"),
    "what a terminal would obey is left out": ("\x1b[31mred\x07", 20, "[31mred"),
    "half a letter becomes a question mark": ("a\ud83d", 20, "a?"),
    "nothing stays nothing": ("", 5, ""),
    "there may be no room even for dots": ("abc", 2, ".."),
}


@pytest.mark.parametrize(("text", "limit", "answer"), CUT.values(), ids=CUT)
def test_texts_are_cut(text: str, limit: int, answer: str) -> None:
    assert cut(text, limit) == answer


@settings(deadline=None)
@given(st.text(st.characters()), st.integers(0, 300))
def test_a_cut_text_is_one_line_of_utf8_within_its_limit(text: str, limit: int) -> None:
    answer = cut(text, limit)
    assert len(answer.encode()) <= limit
    assert len(answer.splitlines()) <= 1
    assert cut(answer, limit) == answer


def test_times_are_whole_seconds_in_utc() -> None:
    east = timezone(timedelta(hours=2))
    assert to_wire_time(datetime(2026, 1, 1, 1, 2, 3, 999_999, east)) == "2025-12-31T23:02:03Z"
    assert to_wire_time(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00Z"


def test_acronyms_are_spelled_as_kubernetes_does() -> None:
    report = LoRAPodStatus.read(
        {
            "metadata": {"name": "p", "namespace": "n", "ownerReferences": [{"uid": "u"}]},
            "spec": {"podName": "p", "podUID": "u"},
            "status": {"engine": {"state": "Ready", "bootID": "b"}, "unloaded": []},
        }
    )
    assert report.spec.pod_uid == "u"
    assert report.owner_uids == ("u",)
    body = report.wire()
    assert body["spec"]["podUID"] == "u"
    assert body["status"]["engine"]["bootID"] == "b"
    assert body["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    ]


def test_a_report_survives_the_wire() -> None:
    body = {
        "metadata": {"name": "p", "namespace": "n", "ownerReferences": [{"uid": "u"}]},
        "spec": {"podName": "p", "podUID": "u", "node": "n1", "service": "llama"},
        "status": {
            "beat": 3,
            "scope": "own",
            "adapters": [
                {
                    "adapter": "a/b",
                    "state": "Loaded",
                    "reason": "Adopted",
                    "loadedAt": "2026-01-01T00:00:00Z",
                }
            ],
            "unloaded": [{"handle": "x", "path": "/x", "bootID": "b"}],
        },
    }
    report = LoRAPodStatus.read(body)
    assert LoRAPodStatus.read(report.wire()) == report


def test_faults_name_the_fields_and_keep_the_values() -> None:
    body = {
        "metadata": {"name": "one"},
        "spec": {"inferenceServiceRef": {}, "name": "a secret", "path": ""},
    }
    with pytest.raises(ValidationError) as caught:
        LoRAAdapter.read(body)
    text = faults(caught.value)
    assert "spec.inferenceServiceRef.name: Field required" in text
    assert "spec.path: " in text
    assert "secret" not in text
    assert "\n" not in text
