"""A host that speaks OpenAI's chat format at another address, with a key of its own."""

from __future__ import annotations

from toolchart.providers.descriptor import HostDescriptor
from toolchart.providers.hosts import CHAT
from toolchart.providers.openai.client import OpenAIProvider
from toolchart.providers.shared.host_rows import HostRow

HOST = HostDescriptor(
    name="acme",
    summary="the chat API of Acme",
    adapter="toolchart_shop.acme:AcmeProvider",
    needs_network=True,
    list_starts="toolchart.providers.entries:list_host_starts",
    formats=(CHAT,),
    own_row=HostRow(
        name="acme",
        title="Acme",
        provider="acme",
        base_url="https://api.acme.test/v1",
        key_variables=("ACME_API_KEY",),
        source="its own page",
    ),
    address_variable="ACME_BASE_URL",
    key_header="authorization: Bearer {key}",
    list_models="toolchart.providers.openai.client:iterate_models",
    fetch_embeddings=None,
)


class AcmeProvider(OpenAIProvider):
    """OpenAI's adapter; the row says what differs."""

    name = "acme"
