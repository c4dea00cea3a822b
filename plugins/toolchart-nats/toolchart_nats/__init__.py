"""The NATS JetStream store (`nats://...`): a log in one stream, which several machines can write.

One stream holds everything, under subjects that begin with `toolchart.NAME`:

    f.FAMILY.CONVERSATION.b                    the first append of a conversation: its record lines
    f.FAMILY.CONVERSATION.r                    each later append
    f.FAMILY.CONVERSATION.e                    lines in place of erased ones
    f.FAMILY.CONVERSATION.v.KIND.open.KEY      a small value that is listed; v.KIND.done.KEY if it is not
    f.FAMILY.CONVERSATION.d                    says that what came before was deleted
    k.CONVERSATION                             the family of a child
    x.CONVERSATION.ID                          pieces of what is larger than one message may be

A family is a conversation and its children: what one lease covers. Each message under `f.FAMILY` is published
with the number of the newest message there that its writer knows. The server refuses it where there is a
newer one. So one check of the server covers both promises: numbers of records are unique, and whoever has
lost the lease appends nothing. A writer that is refused reads the family again and decides anew.
"""

from __future__ import annotations

from toolchart.engine.log.stores import StoreDescriptor

DESCRIPTOR = StoreDescriptor(
    name="nats",
    address="nats://...",
    summary="a NATS JetStream stream",
    open="toolchart_nats.store:open_jetstream_store",
    open_for_reading="toolchart_nats.store:open_jetstream_for_reading",
    is_durable=True,
)
"""The row of the store."""
