"""What a LoRAAdapter's status says of every situation its pods can be in.

From the objects of the API server to the status on the wire, so `reading`, `view`, `judge` and `words` are at work too.
Which adapters are folded, when, and what is written, is for test_loop.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest

from sidecar.aggregator.records import Webhook
from sidecar.aggregator.view import Presence
from tests.aggregator import worlds
from tests.aggregator.worlds import (
    LATER,
    NOW,
    PREFIX,
    Json,
    condition,
    container,
    entry,
    folded,
    pod,
    report,
    says,
)


@dataclass
class Situation:
    what: str
    pods: list[Json]
    reports: list[Json] = field(default_factory=list)
    loaded: tuple[str, str] = ("True", "ReconcileSuccess")
    error: tuple[str, str] = ("False", "ReconcileSuccess")
    count: str | None = None
    message: str = ""
    adapter: Json | None = None
    world: Json = field(default_factory=dict)


def pending(name: str = "chat-a", **more: Any) -> Json:
    made = pod(name, phase="Pending", **more)
    made["status"] = {"phase": "Pending"}
    return made


def starting(name: str = "chat-a", **more: Any) -> Json:
    return pod(name, engine_state=container("sglang", ready=False), **more)


SITUATIONS = [
    Situation(
        "all pods have it",
        [pod("chat-a"), pod("chat-b")],
        [report("chat-a", entry()), report("chat-b", entry("Adopted"))],
        count="2/2",
        message="Loaded on 2 of 2 pods",
    ),
    Situation(
        "an unverified load counts as loaded",
        [pod()],
        [report("chat-a", entry("LoadedUnverified"))],
        count="1/1",
    ),
    Situation(
        "one pod failed, so loading was unsuccessful, with the pod, its node and the agent's words",
        [pod("chat-a"), pod("chat-b", node="node-2")],
        [report("chat-a", entry()), report("chat-b", entry("Incompatible", "rank 64 exceeds 32"))],
        loaded=("False", "LoadUnsuccessful"),
        error=("True", "Incompatible"),
        count="1/2",
        message="Loaded on 1 of 2 pods; chat-b on node-2: Incompatible: rank 64 exceeds 32",
    ),
    Situation(
        "a failure outranks a pod that lags behind and a silent one",
        [pod("chat-a"), pod("chat-b"), pod("chat-c")],
        [
            report("chat-a", entry("Loading")),
            report("chat-b", entry("EngineRejected", "HTTP 400: bad adapter")),
        ],
        loaded=("False", "LoadUnsuccessful"),
        error=("True", "EngineRejected"),
        count="0/3",
    ),
    Situation(
        "a pod that opted in without the agent makes loading unsuccessful",
        [pod("chat-a"), pod("chat-b", agent=False)],
        [report("chat-a", entry())],
        loaded=("False", "LoadUnsuccessful"),
        error=("True", "NotInjected"),
        count="1/2",
        message="Loaded on 1 of 2 pods; chat-b on node-1: NotInjected: the injector did not answer",
    ),
    Situation(
        "pods that wait for the path are behind, with the commonest reason",
        [pod("chat-a"), pod("chat-b"), pod("chat-c")],
        [
            report("chat-a", entry("PathNotFound", "/adapters/sql does not exist")),
            report("chat-b", entry("PathNotFound", "/adapters/sql does not exist")),
            report("chat-c", entry("Loading")),
        ],
        loaded=("False", "PathNotFound"),
        count="0/3",
    ),
    Situation(
        "of equally common reasons the worst is picked",
        [pod("chat-a"), pod("chat-b")],
        [report("chat-a", entry("Loading")), report("chat-b", entry("PathNotFound"))],
        loaded=("False", "PathNotFound"),
    ),
    Situation(
        "a pod that is behind outranks a silent one",
        [pod("chat-a"), pod("chat-b")],
        [report("chat-a", entry("CapacityExceeded"))],
        loaded=("False", "CapacityExceeded"),
    ),
    Situation(
        "retrying is an error while it lasts",
        [pod()],
        [report("chat-a", entry("Retrying", "HTTP 500"))],
        loaded=("False", "Retrying"),
        error=("True", "Retrying"),
    ),
    Situation(
        "an up pod that has not reported leaves it unknown",
        [pod("chat-a"), pod("chat-b")],
        [report("chat-a", entry())],
        loaded=("Unknown", "NotReported"),
        count="1/2",
        message="chat-b on node-1: NotReported: its agent has not reported yet",
    ),
    Situation(
        "an agent whose beat has stopped no longer keeps a claim alive",
        [pod()],
        [report("chat-a", entry())],
        loaded=("Unknown", "NotReported"),
        count="0/1",
        message="silent for more than 11 minutes",
        world={"silent": ["chat-a"]},
    ),
    Situation(
        "what a stopped agent said no longer counts",
        [pod(agent_state=container("lora-sidecar", running=False, why="CrashLoopBackOff"))],
        [report("chat-a", entry())],
        loaded=("Unknown", "NotReported"),
        message="the agent's container does not run: CrashLoopBackOff",
    ),
    Situation(
        "a pod whose Ready is Unknown is not believed",
        [pod(conditions=[{"type": "Ready", "status": "Unknown"}])],
        [report("chat-a", entry())],
        loaded=("Unknown", "NotReported"),
        message="its node does not report",
    ),
    Situation(
        "a pod on a lost node, as today's node controller marks it, is not believed",
        [
            pod(
                conditions=[
                    {"type": "Ready", "status": "False"},
                    {"type": "ContainersReady", "status": "True"},
                ]
            )
        ],
        [report("chat-a", entry())],
        loaded=("Unknown", "NotReported"),
        message="its node does not report",
    ),
    Situation(
        "a report of an earlier pod of the same name does not count",
        [pod()],
        [report("chat-a", entry(), uid="uid-of-the-pod-before")],
        loaded=("Unknown", "NotReported"),
    ),
    Situation(
        "what was said of a re-created adapter's forerunner does not count",
        [pod()],
        [report("chat-a", entry(uid="uid-of-the-one-before"))],
        loaded=("Unknown", "NotReported"),
        message="its agent has not reported on generation 1 yet",
    ),
    Situation(
        "what was said of an older generation does not count",
        [pod()],
        [report("chat-a", entry(generation=1))],
        loaded=("Unknown", "NotReported"),
        message="its agent has not reported on generation 2 yet",
        adapter=worlds.adapter(generation=2),
    ),
    Situation(
        "a claim that is older than the engine's container is not believed",
        [pod(engine_state=container("sglang", started="2026-05-01T11:00:00Z"))],
        [report("chat-a", entry())],
        loaded=("Unknown", "NotReported"),
        message="its agent has not reported since the engine was restarted",
    ),
    Situation(
        "a claim of the very second in which the container started is believed",
        [pod(engine_state=container("sglang", started=worlds.READY_SINCE))],
        [report("chat-a", entry())],
    ),
    Situation(
        "a ready engine whose container does not run is not believed",
        [pod(engine_state=container("sglang", running=False, why="CrashLoopBackOff"))],
        [report("chat-a", entry())],
        loaded=("False", "EngineStarting"),
        count="0/1",
        message="chat-a on node-1: EngineStarting: the engine's container does not run: CrashLoopBackOff",
    ),
    Situation(
        "starting pods do not keep it from being loaded, and are named",
        [pod("chat-a"), starting("chat-b")],
        [
            report("chat-a", entry()),
            report("chat-b", entry("EngineStarting"), engine="Starting", engine_text="refused"),
        ],
        count="1/2",
        message="Loaded on 1 of 2 pods; chat-b on node-1: EngineStarting",
    ),
    Situation(
        "with no engine up it waits for the engines",
        [starting("chat-a"), pending("chat-b")],
        [report("chat-a", entry("EngineStarting"), engine="Starting")],
        loaded=("False", "EngineStarting"),
        count="0/2",
        message="chat-b on node-1: EngineStarting: the pod does not run yet: Pending",
    ),
    Situation(
        "a death that the agent reports is seen though the kubelet still calls the engine ready",
        [pod()],
        [report("chat-a", entry(), engine="Starting", engine_text="[::1]:30000 refused")],
        loaded=("False", "EngineUnreachable"),
        count="0/1",
        message="EngineUnreachable: [::1]:30000 refused",
    ),
    Situation(
        "an engine that no longer answers is not said to hold anything",
        [pod()],
        [report("chat-a", entry(), engine="Unreachable", engine_text="3 reads timed out")],
        loaded=("False", "EngineUnreachable"),
        count="0/1",
        message="3 reads timed out",
    ),
    Situation(
        "that an engine does not answer is believed whenever its container was started",
        [pod(engine_state=container("sglang", started="2026-05-01T11:00:00Z"))],
        [report("chat-a", entry(), engine="Unreachable", engine_text="3 reads timed out")],
        loaded=("False", "EngineUnreachable"),
    ),
    Situation(
        "an engine that is not up holds nothing, whatever was said before",
        [starting()],
        [report("chat-a", entry(), engine="Starting", engine_text="refused")],
        loaded=("False", "EngineStarting"),
        count="0/1",
    ),
    Situation(
        "an unsupported engine is a failure in its agent's words",
        [pod()],
        [report("chat-a", engine="Unsupported", engine_text="tokenizer_worker_num is 4")],
        loaded=("False", "LoadUnsuccessful"),
        error=("True", "EngineUnsupported"),
        message="tokenizer_worker_num is 4",
    ),
    Situation(
        "a failed path is a failure before the engine is up",
        [starting()],
        [report("chat-a", entry("PathNotShared"), engine="Starting")],
        loaded=("False", "LoadUnsuccessful"),
        error=("True", "PathNotShared"),
    ),
    Situation(
        "an adapter of a namespace that the pod does not take is not allowed there",
        [pod()],
        [report("chat-a", allowedNamespaces=["ml", "team-a"])],
        loaded=("False", "LoadUnsuccessful"),
        error=("True", "NamespaceNotAllowed"),
        message="the pod takes adapters from ml, team-a only",
        adapter=worlds.adapter(namespace="team-b"),
    ),
    Situation(
        "an agent that may read its own namespace only cannot take another's adapter",
        [pod()],
        [report("chat-a", scope="own")],
        loaded=("False", "LoadUnsuccessful"),
        error=("True", "NamespaceNotAllowed"),
        adapter=worlds.adapter(namespace="team-b"),
    ),
    Situation(
        "an agent that may read its own namespace only takes its own adapters",
        [pod()],
        [report("chat-a", entry(), scope="own")],
    ),
    Situation(
        "what a full report leaves out has found no place",
        [pod()],
        [report("chat-a", reportTruncated=True)],
        loaded=("False", "CapacityExceeded"),
    ),
    Situation(
        "a reason that is not known here is ignored, and the message says so",
        [pod()],
        [report("chat-a", entry("MoonPhase", state="Failed"))],
        loaded=("Unknown", "NotReported"),
        message="its agent says what is not understood here: Failed MoonPhase",
    ),
    Situation(
        "a state that does not go with its reason is ignored",
        [pod()],
        [report("chat-a", entry("PathNotFound", state="Loaded"))],
        loaded=("Unknown", "NotReported"),
        message="not understood here: Loaded PathNotFound",
    ),
    Situation(
        "a report without an engine is not understood",
        [pod()],
        [report("chat-a", entry(), engine="Sleeping")],
        loaded=("Unknown", "NotReported"),
        message="its report does not say how the engine is",
    ),
    Situation(
        "pods that did not opt in are mentioned only",
        [pod("chat-a"), pod("chat-b", opted_in=False, agent=False)],
        [report("chat-a", entry())],
        count="1/1",
        message="Loaded on 1 of 1 pod; +1 not opted in",
    ),
    Situation(
        "terminating and finished pods do not count",
        [pod("chat-a"), pod("chat-b", deleting=True), pod("chat-c", phase="Failed")],
        [report("chat-a", entry()), report("chat-b", entry("Incompatible"))],
        count="1/1",
    ),
    Situation(
        "without pods there is nothing to load it into",
        [],
        loaded=("False", "NoPods"),
        count="0/0",
        message="InferenceService ml/chat has no pods",
    ),
    Situation(
        "an unload that is stuck on the way to a new path is an error",
        [pod()],
        [report("chat-a", entry("UnloadStuck", "no answer"))],
        loaded=("False", "UnloadStuck"),
        error=("True", "UnloadStuck"),
    ),
    Situation(
        "the service does not exist",
        [pod()],
        [report("chat-a", entry())],
        error=("True", "InferenceServiceNotFound"),
        world={"presence": Presence.MISSING},
    ),
    Situation(
        "when a service leaves, its adapters are left with Unknown",
        [pod("chat-a", opted_in=False, agent=False)],
        loaded=("Unknown", "NotOptedIn"),
        message="is no longer opted in",
        world={"opted_in": False},
    ),
    Situation(
        "where no InferenceService can exist, an adapter of nobody is told how to opt in",
        [pod("chat-a", opted_in=False, agent=False)],
        loaded=("False", "NotOptedIn"),
        message=f'(1 without it): set the annotation {PREFIX}/inject: "true"',
        world={"opted_in": False, "presence": Presence.KIND_ABSENT},
    ),
    Situation(
        "on deletion, an adapter that every engine has given up is unloaded",
        [pod("chat-a"), pod("chat-b")],
        [report(name, entry("Unloaded", generation=2)) for name in ("chat-a", "chat-b")],
        loaded=("False", "Unloaded"),
        message="Unloaded from 2 of 2 pods",
        adapter=worlds.adapter(generation=2, deleting=True),
    ),
    Situation(
        "on deletion, an agent that has not acknowledged it yet is waited for",
        [pod()],
        [report("chat-a", entry())],
        loaded=("False", "Unloading"),
        message="its agent has not confirmed the unload yet",
        adapter=worlds.adapter(generation=2, deleting=True),
    ),
    Situation(
        "an Unloaded of before the deletion acknowledges nothing",
        [pod()],
        [report("chat-a", entry("Unloaded", generation=1))],
        loaded=("False", "Unloading"),
        adapter=worlds.adapter(generation=2, deleting=True),
    ),
    Situation(
        "on deletion, an engine that keeps it makes unloading unsuccessful",
        [pod("chat-a"), pod("chat-b")],
        [
            report("chat-a", entry("Unloaded", generation=2)),
            report("chat-b", entry("UnloadRefused", "listed in --lora-paths", generation=2)),
        ],
        loaded=("False", "UnloadUnsuccessful"),
        error=("True", "UnloadRefused"),
        message="Unloaded from 1 of 2 pods; chat-b on node-1: UnloadRefused: listed in --lora-paths",
        adapter=worlds.adapter(generation=2, deleting=True),
    ),
    Situation(
        "on deletion, a silent engine may still hold it",
        [pod()],
        loaded=("Unknown", "NotReported"),
        adapter=worlds.adapter(generation=2, deleting=True),
    ),
    Situation(
        "on deletion, an engine that is not up holds nothing",
        [starting()],
        [report("chat-a", engine="Starting")],
        loaded=("False", "Unloaded"),
        adapter=worlds.adapter(generation=2, deleting=True),
    ),
]

named = pytest.mark.parametrize("case", SITUATIONS, ids=lambda case: case.what)


@named
def test_a_status_says_the_truth(case: Situation):
    status = folded(case.pods, case.reports, adapter=case.adapter, **case.world)
    assert says(status) == case.loaded
    assert says(status, "Error") == case.error
    assert case.message in condition(status)["message"]
    if case.count is not None:
        assert status["podsLoaded"] == case.count


@named
def test_the_order_in_which_things_are_known_changes_nothing(case: Situation):
    answers = [
        folded(pods, reports, adapter=case.adapter, **case.world)
        for pods in permutations(case.pods)
        for reports in permutations(case.reports)
    ]
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.field(107)
@named
def test_folding_again_later_changes_nothing(case: Situation):
    first = folded(case.pods, case.reports, adapter=case.adapter, **case.world)
    held = (case.adapter or worlds.adapter()) | {"status": first}
    assert folded(case.pods, case.reports, adapter=held, now=LATER, **case.world) == first


@named
def test_no_message_is_more_than_a_line(case: Situation):
    status = folded(case.pods, case.reports, adapter=case.adapter, **case.world)
    for one in status["conditions"]:
        assert one["message"] == " ".join(one["message"].split())


# ---- Available ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("adapter", "world", "said", "words"),
    [
        pytest.param({}, {}, ("True", "ReconcileSuccess"), "ml/chat runs sglang", id="all is well"),
        pytest.param(
            {},
            {"presence": Presence.MISSING},
            ("False", "InferenceServiceNotFound"),
            "InferenceService ml/chat does not exist",
            id="the service does not exist",
        ),
        pytest.param(
            {},
            {"runtime": "vllm"},
            ("False", "RuntimeMismatch"),
            "InferenceService ml/chat runs vllm, not sglang",
            id="the service runs another engine",
        ),
        pytest.param(
            {"path": "hub/name"},
            {},
            ("False", "InvalidSpec"),
            "path 'hub/name' is not absolute",
            id="a relative path is no path",
        ),
        pytest.param(
            {"name": "sql", "path": 7},
            {},
            ("False", "InvalidSpec"),
            "spec.path: Input should be a valid string",
            id="what an older CRD let pass is named by its field",
        ),
        pytest.param(
            {},
            {"presence": Presence.KIND_ABSENT},
            ("Unknown", "InferenceServiceKindAbsent"),
            "serves no InferenceServices",
            id="the cluster has no InferenceServices",
        ),
        pytest.param(
            {},
            {"presence": Presence.UNREADABLE},
            ("Unknown", "InferenceServiceKindAbsent"),
            "cannot be read",
            id="the cluster's InferenceServices may not be read",
        ),
    ],
)
def test_available_says_whether_spec_and_service_make_sense(adapter, world, said, words):
    status = folded(
        [pod()], [report("chat-a", entry())], adapter=worlds.adapter(**adapter), **world
    )
    assert says(status, "Available") == said
    assert words in condition(status, "Available")["message"]
    if said[0] == "False":
        assert says(status, "Error") == ("True", said[1])
        assert condition(status, "Error")["message"] == condition(status, "Available")["message"]


# ---- why a pod has no agent ------------------------------------------------------------------------

AFTER, BEFORE = NOW, NOW - timedelta(days=30)


@pytest.mark.field(75)
@pytest.mark.parametrize(
    ("annotations", "webhook", "text"),
    [
        pytest.param(
            {f"{PREFIX}/skipped": "no-engine-container"},
            Webhook(),
            "the injector skipped it: no-engine-container",
            id="the injector's own word comes first",
        ),
        pytest.param(
            {},
            Webhook(created=AFTER, excluded=frozenset({"ml"})),
            "namespace ml is excluded from injection",
            id="then the namespace",
        ),
        pytest.param(
            {}, Webhook(created=AFTER), "it is older than the injector", id="then the pod's age"
        ),
        pytest.param(
            {}, Webhook(created=BEFORE), "the injector did not answer", id="else it did not answer"
        ),
        pytest.param(
            {}, Webhook(installed=False), "the injector is not installed", id="or there is none"
        ),
        pytest.param({}, None, "the injector did not answer", id="or nothing is known of it"),
    ],
)
def test_a_pod_without_the_agent_says_why(annotations, webhook, text):
    status = folded([pod(agent=False, annotations=annotations)], webhook=webhook)
    assert text in status["pods"][0]["text"]
    assert (status["pods"][0]["state"], status["pods"][0]["reason"]) == ("Failed", "NotInjected")


# ---- the list of pods, times and bounds ----------------------------------------------------------------


def test_the_pods_are_listed_worst_first():
    status = folded(
        [pod(f"chat-{letter}") for letter in "abcdef"] + [starting("chat-g")],
        [
            report("chat-a", entry()),
            report("chat-b", entry("Loading")),
            report("chat-c", entry("PathNotFound")),
            report("chat-e", entry("NameTaken")),
            report("chat-f", entry("InvalidPath")),
            report("chat-g", entry("EngineStarting"), engine="Starting"),
        ],
    )
    assert [(item["pod"], item["reason"]) for item in status["pods"]] == [
        ("chat-f", "InvalidPath"),
        ("chat-e", "NameTaken"),
        ("chat-c", "PathNotFound"),
        ("chat-b", "Loading"),
        ("chat-d", "NotReported"),
        ("chat-g", "EngineStarting"),
        ("chat-a", "Loaded"),
    ]


def test_a_pod_is_listed_with_its_node_state_reason_text_and_since():
    status = folded([pod(node="node-7")], [report("chat-a", entry("PathNotFound", "not there"))])
    assert status["pods"] == [
        {
            "pod": "chat-a",
            "podNode": "node-7",
            "reason": "PathNotFound",
            "since": "2026-05-01T12:00:00Z",
            "state": "Pending",
            "text": "not there",
        }
    ]


def test_a_loaded_pod_is_so_since_its_load():
    status = folded([pod()], [report("chat-a", entry())])
    assert status["pods"][0]["since"] == worlds.LOADED_AT
    assert "text" not in status["pods"][0]


def test_since_moves_with_the_reason_and_not_with_the_text():
    def at(reason: str, text: str, now, status: Json) -> Json:
        said = [report("chat-a", entry(reason, text))]
        return folded([pod()], said, adapter=worlds.adapter(status=status), now=now)

    first = at("PathIncomplete", "1 of 3 files", NOW, {})
    second = at("PathIncomplete", "2 of 3 files", LATER, first)
    third = at("Loading", "", LATER, second)
    assert [s["pods"][0]["since"] for s in (first, second, third)] == [
        "2026-05-01T12:00:00Z",
        "2026-05-01T12:00:00Z",
        "2026-05-01T13:00:00Z",
    ]


def test_transition_times_move_only_with_the_status():
    waiting = [report("chat-a", entry("PathNotFound"))]
    first = folded([pod()], waiting)
    held = worlds.adapter(status=first)
    other_reason = folded([pod()], [report("chat-a", entry("Loading"))], adapter=held, now=LATER)
    loaded = folded([pod()], [report("chat-a", entry())], adapter=held, now=LATER)
    assert condition(other_reason)["lastTransitionTime"] == "2026-05-01T12:00:00Z"
    assert condition(loaded)["lastTransitionTime"] == "2026-05-01T13:00:00Z"
    assert condition(loaded, "Available")["lastTransitionTime"] == "2026-05-01T12:00:00Z"


def test_fifty_pods_are_listed_and_the_rest_is_counted():
    pods = [pod(f"chat-{n:03}") for n in range(73)]
    reports = [report(f"chat-{n:03}", entry()) for n in range(73)]
    status = folded(pods, reports)
    assert (len(status["pods"]), status["podsOmitted"], status["podsLoaded"]) == (50, 23, "73/73")


def test_nothing_is_omitted_where_all_pods_have_room():
    assert "podsOmitted" not in folded([pod()])


@pytest.mark.parametrize("length", range(20, 150, 7))
def test_a_message_stays_within_its_bounds_and_counts_who_found_no_place(length):
    names = [f"chat-{n:03}" for n in range(200)]
    words = "ä" * length
    status = folded(
        [pod(name) for name in names],
        [report(name, entry("EngineRejected", words)) for name in names],
    )
    message = condition(status)["message"]
    shown = message.count("EngineRejected: ")
    assert 20 < shown < 200
    assert len(message.encode()) <= 8192
    assert message.endswith(f"; +{200 - shown} more")
    assert all(len(part.encode()) <= 256 for part in message.split("; "))
    assert all(len(item["text"].encode()) <= 256 for item in status["pods"])
    assert len(condition(status, "Error")["message"].encode()) < 512


def test_a_pod_that_is_not_yet_on_a_node_is_named_without_one():
    status = folded([pending(node="")])
    assert (
        "; chat-a: EngineStarting: the pod does not run yet: Pending"
        in condition(status)["message"]
    )
    assert "podNode" not in status["pods"][0]


# ---- what was loaded ------------------------------------------------------------------------------------


def test_the_newest_load_and_the_accepted_path_are_told():
    status = folded(
        [pod("chat-a"), pod("chat-b")],
        [
            report("chat-a", entry(loaded_at="2026-05-01T10:07:00Z")),
            report("chat-b", entry(loaded_at="2026-05-01T10:09:00Z")),
        ],
    )
    assert (status["lastLoadedAt"], status["loadedPath"]) == (
        "2026-05-01T10:09:00Z",
        "/adapters/sql",
    )


def test_what_was_loaded_once_is_remembered_while_no_engine_has_it():
    before = {"lastLoadedAt": "2026-05-01T09:00:00Z", "loadedPath": "/adapters/old"}
    status = folded([pod()], adapter=worlds.adapter(status=before))
    assert status.items() >= before.items()


def test_a_load_that_lies_in_the_future_is_not_kept_for_ever():
    before = {"lastLoadedAt": "2036-01-01T00:00:00Z"}
    status = folded([pod()], [report("chat-a", entry())], adapter=worlds.adapter(status=before))
    assert status["lastLoadedAt"] == worlds.LOADED_AT


def test_before_the_first_load_neither_is_told():
    status = folded([pod()], [report("chat-a", entry("PathNotFound"))])
    assert status.keys().isdisjoint({"lastLoadedAt", "loadedPath"})


# ---- what others wrote ------------------------------------------------------------------------------------


def test_conditions_of_other_types_stay_where_and_as_they_are():
    theirs = {"type": "Billed", "status": "True", "reason": "Paid", "message": "", "extra": [1]}
    ours = {"type": "Loaded", "status": "False", "reason": "X", "message": ""}
    status = folded([pod()], adapter=worlds.adapter(status={"conditions": [theirs, ours]}))
    assert status["conditions"][0] == theirs
    assert [one["type"] for one in status["conditions"]] == [
        "Billed",
        "Loaded",
        "Available",
        "Error",
    ]


@pytest.mark.parametrize(
    "garbage",
    [
        {"conditions": "none", "pods": {"a": 1}, "lastLoadedAt": "yesterday", "loadedPath": 7},
        {"conditions": [None, {"type": "Loaded"}, {"type": ["Loaded"]}], "pods": [3, {"pod": []}]},
        {"conditions": [{"type": "Loaded", "status": "Perhaps", "reason": "", "message": 1}]},
    ],
    ids=["no lists at all", "lists of what they do not hold", "a condition that is none"],
)
def test_a_status_edited_by_hand_is_put_right(garbage):
    status = folded([pod()], [report("chat-a", entry())], adapter=worlds.adapter(status=garbage))
    assert says(status) == ("True", "ReconcileSuccess")
    assert status["pods"][0]["pod"] == "chat-a"


def test_the_generation_that_was_folded_is_told_everywhere():
    status = folded([pod()], adapter=worlds.adapter(generation=4))
    assert status["observedGeneration"] == 4
    assert {one["observedGeneration"] for one in status["conditions"]} == {4}
