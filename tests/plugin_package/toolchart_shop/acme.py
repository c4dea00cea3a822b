"""A host that speaks OpenAI's chat format at another address, with a key of its own."""

from __future__ import annotations

from toolchart.providers.descriptor import HostDescriptor
from toolchart.providers.hosts import CHAT
from toolchart.providers.openai.client import OpenAIProvider

HOST = HostDescriptor(
    name="acme",
    summary="the chat API of Acme",
    adapter="toolchart_shop.acme:AcmeProvider",
    needs_network=True,
    list_starts="toolchart.providers.entries:list_host_starts",
    formats=(CHAT,),
    default_address="https://api.acme.test/v1",
    address_variable="ACME_BASE_URL",
    key_variables=("ACME_API_KEY",),
    key_header="authorization: Bearer {key}",
    list_models="toolchart.providers.openai.client:iterate_models",
    fetch_embeddings=None,
)


class AcmeProvider(OpenAIProvider):
    """OpenAI's adapter; the row says what differs."""

    name = "acme"
