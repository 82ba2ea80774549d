"""Which objects are asked for, and what to do about servers that cannot select by a field.

A CRD's field can be selected by from Kubernetes 1.31 where the CRD lists it in `selectableFields`; elsewhere a list
or watch that tries is answered with 400. The field selector is left out then, and tried again each hour, as an
upgrade of the server or of the CRD is not announced.
"""

import logging
from collections.abc import Callable
from typing import Final

from sidecar.kube.errors import Invalid

log = logging.getLogger(__name__)

_RETRY: Final = 3600.0


class Selectors:
    """The selectors of one informer. `optional`: the field selector may be left out, the caller filters itself."""

    def __init__(
        self,
        field: str | None,
        label: str | None,
        *,
        optional: bool,
        clock: Callable[[], float],
    ) -> None:
        self._field = field
        self._label = label
        self._optional = optional
        self._clock = clock
        self._told = False
        self._without_until: float | None = None

    def params(self) -> dict[str, str]:
        """The parameters of a list or watch."""
        field = self._field if self._without_until is None else None
        wanted = {"fieldSelector": field, "labelSelector": self._label}
        return {name: value for name, value in wanted.items() if value}

    def drop(self, error: Invalid) -> bool:
        """Leaves the field selector out for an hour, where it is that which `error` refuses. Answers whether so."""
        if not (error.selector_unsupported and self._optional and "fieldSelector" in self.params()):
            return False
        level = logging.DEBUG if self._told else logging.WARNING
        log.log(level, "the server cannot select by %s: filtering here instead", self._field)
        self._told = True
        self._without_until = self._clock() + _RETRY
        return True

    def retry(self) -> bool:
        """Takes the field selector up again once the hour is over. Answers whether that is now."""
        if self._without_until is None or self._clock() < self._without_until:
            return False
        self._without_until = None
        return True
