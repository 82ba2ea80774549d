"""What belongs together: a service's pods, a pod's report, whose beat is heard; and whom a change concerns.

Holds what the informers told and does no I/O; the time comes from a clock that is handed in. A change marks the
adapters that it can concern as dirty, and no others: among 100,000 standings one pod's news must stay cheap.

The service of a pod is what its label or annotation says, and that of a report is its pod's: a report's own word
would let any pod speak for any service.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sidecar.aggregator.records import Adapter, Pod, Report, Service, Webhook
from sidecar.aggregator.view import SILENCE_LIMIT, Presence, View, opted_in, view

ServiceKey = tuple[str, str]
"""Namespace and name of an InferenceService."""

LABELLED: Final = "labelled"
MARKED: Final = "marked"


class Index:
    """The world as last heard of. `dirty`: adapters that a change may concern, and since when."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.dirty: dict[str, float] = {}
        self.adapters: dict[str, Adapter] = {}
        self.reports: dict[str, Report] = {}
        self._clock = clock
        self._adapters_of: dict[ServiceKey, set[str]] = {}
        self._pods: dict[str, dict[str, Pod]] = {}
        self._pods_of: dict[ServiceKey, set[str]] = {}
        self._services: dict[str, Service] = {}
        self._kind: Presence = Presence.FOUND
        self._webhook: Webhook | None = None
        self._heard: dict[str, float] = {}
        self._alive: set[str] = set()
        self._expiry: float | None = None
        self._no_expiry_before = 0.0
        self._opted_in: set[ServiceKey] = set()
        self._stirred: set[ServiceKey] = set()
        """Services that have changed since `opted_in` was asked."""
        self._views: dict[ServiceKey, View] = {}

    # ---- what the informers tell ---------------------------------------------------------------------------

    def on_adapter(self, key: str, _: Adapter | None, new: Adapter | None) -> None:
        """A LoRAAdapter came, changed or went."""
        held = self.adapters.get(key)
        if new is None:
            self._forget_adapter(key, held)
        elif held is None or _newer(new.resource_version, held.resource_version):
            self.learn(new)
            self.dirty.setdefault(key, self._clock())

    def learn(self, new: Adapter) -> None:
        """Take an adapter as the API server has just answered it, which its informer will tell only later."""
        held = self.adapters.get(new.key)
        if held is not None and held.service != new.service:
            self._adapters_of.get(held.service, set()).discard(new.key)
        self.adapters[new.key] = new
        self._adapters_of.setdefault(new.service, set()).add(new.key)

    def _forget_adapter(self, key: str, held: Adapter | None) -> None:
        if held is not None:
            _remove(self._adapters_of, held.service, key)
        self.adapters.pop(key, None)
        self.dirty.pop(key, None)

    def on_pod(self, source: str, key: str, new: Pod | None) -> None:
        """A pod came, changed or went, as one of the two informers on pods tells it."""
        told = self._pods.setdefault(key, {})
        before = _latest(told)
        if new is None:
            told.pop(source, None)
        else:
            told[source] = new
        after = _latest(told)
        if not told:
            del self._pods[key]
        if before == after:
            return
        if before is not None:
            _remove(self._pods_of, (before.namespace, before.service), key)
            self._soil(before.namespace, before.service)
        if after is not None and after.service:
            service = (after.namespace, after.service)
            self._pods_of.setdefault(service, set()).add(key)
            if after.opted_in and not after.finished:
                self._opted_in.add(service)
            self._soil(*service)

    def on_report(self, key: str, old: Report | None, new: Report | None) -> None:
        """A report came, changed or went."""
        revived = False
        if new is None:
            self.reports.pop(key, None)
            self._heard.pop(key, None)
            self._alive.discard(key)
        else:
            self.reports[key] = new
            if old is None or (old.pod_uid, old.beat) != (new.pod_uid, new.beat):
                revived = key not in self._alive
                self._heard[key] = self._clock()
                self._alive.add(key)
        service = self._service_of(key)
        if service is None:
            return
        self._views.pop(service, None)
        if revived or old is None or new is None or _head(old) != _head(new):
            self._soil(*service)
        else:
            self._mark(_changed(old, new) & self._adapters_of.get(service, set()))

    def on_service(self, key: str, _: Service | None, new: Service | None) -> None:
        """An InferenceService came, changed or went."""
        if new is None:
            self._services.pop(key, None)
        else:
            self._services[key] = new
        namespace, name = key.split("/", 1)
        self._soil(namespace, name)

    def remember_opted_in(self, services: Iterable[ServiceKey]) -> None:
        """These were opted in when somebody last looked; their own pods know better."""
        for service in set(services) - self._opted_in:
            self._opted_in.add(service)
            self._soil(*service)

    def touch(self, services: Iterable[ServiceKey]) -> None:
        """Let the adapters of these services be looked at again."""
        for service in services:
            self._soil(*service)

    def set_kind(self, kind: Presence) -> None:
        """Whether InferenceServices are served and can be seen: FOUND, KIND_ABSENT or UNREADABLE."""
        if kind is not self._kind:
            self._kind = kind
            self._soil_everything()

    def set_webhook(self, webhook: Webhook | None) -> None:
        """What is known of the injector's webhook; None: nothing."""
        if webhook != self._webhook:
            self._webhook = webhook
            self._soil_everything()

    # ---- beats ---------------------------------------------------------------------------------------------

    def expire(self) -> float | None:
        """Let the reports fall silent whose beat was last seen to change too long ago; say when to look again."""
        now = self._clock()
        if self._expiry is not None:
            moment = max(self._expiry, self._no_expiry_before)
            if now < moment:
                return moment  # beats only ever move it further away
        for key in [key for key in self._alive if self._heard[key] + SILENCE_LIMIT <= now]:
            self._alive.discard(key)
            if service := self._service_of(key):
                self._soil(*service)
        oldest = min((self._heard[key] for key in self._alive), default=None)
        self._expiry = None if oldest is None else oldest + SILENCE_LIMIT
        return self._expiry

    def forgive(self, seconds: float) -> None:
        """Let nobody fall silent for so long: it was we who could not hear."""
        self._no_expiry_before = self._clock() + seconds

    # ---- what the loop asks ----------------------------------------------------------------------------------

    def view(self, service: ServiceKey) -> View:
        """The service at this moment."""
        known = self._views.get(service)
        if known is None:
            known = self._views[service] = self._look(service)
        return known

    def pod(self, namespace: str, name: str) -> Pod | None:
        """What is known of a pod."""
        return self._pod(f"{namespace}/{name}")

    def mark_all(self) -> None:
        """Let every adapter be looked at again."""
        self._mark(self.adapters)

    def opted_in(self) -> frozenset[ServiceKey]:
        """The services that are opted in at this moment."""
        for service in self._stirred & (self._opted_in | self._pods_of.keys()):
            self.view(service)
        self._stirred.clear()
        return frozenset(self._opted_in)

    def services(self) -> Iterable[ServiceKey]:
        """Those that have adapters or pods."""
        return self._adapters_of.keys() | self._pods_of.keys()

    def _look(self, service: ServiceKey) -> View:
        found = self._services.get(f"{service[0]}/{service[1]}")
        presence = self._kind
        if presence is Presence.FOUND and found is None:
            presence = Presence.MISSING
        pods = [pod for pod in map(self._pod, self._pods_of.get(service, ())) if pod is not None]
        opted = opted_in(service in self._opted_in, pods, presence)
        (self._opted_in.add if opted else self._opted_in.discard)(service)
        return view(
            service,
            pods,
            self.reports,
            alive=self._alive.__contains__,
            opted_in=opted,
            presence=presence,
            runtime=found.runtime if found else "",
            webhook=self._webhook,
        )

    # ---- inside ----------------------------------------------------------------------------------------------

    def _pod(self, key: str) -> Pod | None:
        return _latest(self._pods.get(key, {}))

    def _service_of(self, key: str) -> ServiceKey | None:
        pod = self._pod(key)
        return (pod.namespace, pod.service) if pod is not None and pod.service else None

    def _soil(self, namespace: str, name: str) -> None:
        self._stirred.add((namespace, name))
        self._views.pop((namespace, name), None)
        self._mark(self._adapters_of.get((namespace, name), ()))

    def _soil_everything(self) -> None:
        self._stirred |= self._opted_in | self._pods_of.keys()
        self._views.clear()
        self._mark(self.adapters)

    def _mark(self, keys: Iterable[str]) -> None:
        now = self._clock()
        for key in keys:
            self.dirty.setdefault(key, now)


def _latest(told: Mapping[str, Pod]) -> Pod | None:
    """Of what two informers say of one pod, the newer; they are not in step."""
    if len(told) < 2:
        return next(iter(told.values()), None)
    first, second = told.values()
    return second if _newer(second.resource_version, first.resource_version) else first


def _newer(one: str, other: str) -> bool:
    """Whether a resourceVersion is newer than another of the same resource.

    They are ordered decimals (declared so from Kubernetes 1.35, and made of etcd's revision before).
    """
    if one.isdecimal() and other.isdecimal():
        return int(one) > int(other)
    return one != other


def _head(report: Report) -> tuple[object, ...]:
    """What of a report concerns every adapter."""
    return (
        report.pod_uid,
        report.engine,
        report.engine_text,
        report.engine_since,
        report.scope,
        report.allowed,
        report.truncated,
    )


def _changed(old: Report, new: Report) -> set[str]:
    """The adapters of which the report says something else than before."""
    before, after = old.entries, new.entries
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _remove(groups: dict[ServiceKey, set[str]], group: ServiceKey, key: str) -> None:
    members = groups.get(group, set())
    members.discard(key)
    if not members:
        groups.pop(group, None)
