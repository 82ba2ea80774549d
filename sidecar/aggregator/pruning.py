"""Which of our additions to a LoRAAdapter's status the installed CRD keeps: LLMKube's own prunes them.

It is learned from what the API server stores. A CRD that is replaced ends the watches of its objects, so each new watch
is a reason to try once more; with the same CRD that try changes nothing, and wakes nobody.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Any

log = logging.getLogger(__name__)


class Pruning:
    """What is known of the installed CRD."""

    def __init__(self) -> None:
        self._pruned: set[str] = set()
        self._watches = 0

    def matters(self, patch: Mapping[str, Any]) -> bool:
        """Whether something of this change would be stored, as far as is known."""
        return bool(patch.keys() - self._pruned)

    def learn(self, asked: Collection[str], pruned: Collection[str]) -> bool:
        """Of the additions that were `asked` to be stored, these were `pruned`. Answers whether more is kept now."""
        if new := set(pruned) - self._pruned:
            log.info("the installed CRD of LoRAAdapter prunes %s", ", ".join(sorted(new)))
        kept = (self._pruned & set(asked)) - set(pruned)
        if kept:
            log.info("the installed CRD of LoRAAdapter keeps %s", ", ".join(sorted(kept)))
        self._pruned = (self._pruned - set(asked)) | set(pruned)
        return bool(kept)

    def doubt(self, watches: int) -> bool:
        """Forget, where there is another watch than before; `watches` counts them. Answers whether that matters."""
        again = watches != self._watches
        self._watches = watches
        forgotten = again and bool(self._pruned)
        if again:
            self._pruned = set()
        return forgotten
