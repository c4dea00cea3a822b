"""Which host and model private data of a message belongs to: reasoning, signatures, items with ids.

The data goes back only to the host and the model that sent it. Two hosts may share an adapter (every
compatible host is `openai`), but what one of them encrypted, the other must not see and cannot use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from toolchart.states.messages import Message

IMPORTED_PROVIDER = "imported"
"""Name of the provider in data that an import attached to a message. It belongs to no host, so leaving it
out of a request loses nothing."""

_NO_DATA: Mapping[str, Any] = {}


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a reply comes from, and where its private data may go."""

    provider: str
    """Name of the adapter."""
    host: str = ""
    """Name and port of the host; empty where the address is not known."""
    model: str = ""
    """Model, as requests name it."""

    def owns(self, data: Mapping[str, Any]) -> bool:
        """Whether data of a message comes from here. Logs of older releases name no host and no model."""
        return data.get("provider") == self.provider and all(
            not own or data.get(key) in (None, own)
            for key, own in (("host", self.host), ("model", self.model))
        )

    def get_data(self, message: Message) -> Mapping[str, Any]:
        """The private data of a message; empty where it has none, or where it belongs elsewhere."""
        data = message.provider_data
        return data if data is not None and self.owns(data) else _NO_DATA

    def mark_data(self, data: dict[str, Any] | None) -> dict[str, Any] | None:
        """The data of a reply with its host and model."""
        if data is None or data.get("provider") != self.provider:
            return data
        names = {"host": self.host, "model": self.model}
        return {**data, **{key: name for key, name in names.items() if name}}


def find_foreign_data(messages: Sequence[Message], origin: Origin, key: str) -> list[str]:
    """A warning if the last assistant message holds data that cannot be sent to this host and model.

    Only the last assistant message counts: the first reply after a change warns, later ones do not.

    Args:
        origin: where the request goes.
        key: under which this wire format keeps its data.
    """
    last = next((message for message in reversed(messages) if message.role == "assistant"), None)
    data = (last.provider_data or {}) if last else {}
    is_usable = key in origin.get_data(last) if last else False
    if not data.get("provider") or is_usable or data["provider"] == IMPORTED_PROVIDER:
        return []
    source = " ".join(str(data[name]) for name in ("provider", "host", "model") if data.get(name))
    target = " ".join(name for name in (origin.provider, origin.host, origin.model) if name)
    return [
        f"data that {source} attached to its messages (reasoning, signatures) was left out of "
        f"the request to {target}"
    ]
