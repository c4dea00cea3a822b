"""Adapters for model hosts: encode requests for each API, and decode its replies.

A call goes from `adapter.py`, which takes the digest of the body, through a host's `wire.py` (encodes the
body and decodes the reply), its `client.py` (sends) and its `stream.py` (joins the pieces of a streamed
answer). The rooms, each importing lower ones only:

| room | contents |
|---|---|
| `registry` | creates the provider of an `llms` entry |
| `scripted`, `text_calls` | providers without a wire of their own; calls as text |
| `anthropic`, `bedrock`, `gemini`, `ollama`, `openai` | one host each: `wire.py`, `stream.py`, `client.py` |
| `wire_adapter`, `catalogs` | sending one JSON body; lists of models and embeddings |
| `adapter`, `entries` | what all adapters do; what an `llms` entry says |
| `hosts`, `descriptor` | the table of hosts, and the form of its rows |
| `transport` | connections, limits, encoded bodies, frames of streams |
| `shared` | what the wires share: requests, replies, failures, what models refuse |

Beside them stands `prices`, which adds the cost to a reply.
"""
