"""Everything of one owner, or of one conversation: finds it, and deletes it, so that none of its words stay.

Whole conversations go: their records, large parts, checkpoints, totals, and what waits in their inboxes. So
do the agents that they run, the contexts of their turns, and their forks, which have the same owner.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolchart.engine.log.family import iterate_family, name_context, read_forks, read_heading, read_parent
from toolchart.engine.log.retention import list_conversation_ages
from toolchart.states.errors import NotFound, SpecError
from toolchart.states.ports import Store


def list_owned(store: Store, owner: str) -> list[str]:
    """All conversations of an owner, those of agents, contexts and forks too; the oldest first.

    Raises:
        SpecError: the owner is empty: what belongs to nobody has no owner to ask for it.
        LogDamaged: whose a conversation is cannot be read.
    """
    if not owner:
        raise SpecError("an owner has a name", path="owner", hint="name whose conversations are meant")
    return [name for name in store.list_conversations() if _find_owner(store, name) == owner]


def _find_owner(store: Store, conversation: str) -> str:
    heading = read_heading(store, conversation)
    return heading.owner if heading is not None else ""


def require_deletable(store: Store, names: Sequence[str]) -> None:
    """Refuse to delete conversations while one of them works, or another one needs one.

    Raises:
        SpecError: a turn is open, a worker has one of them, or a fork that stays shares its records.
    """
    own = set(names)
    for age in list_conversation_ages(store):
        if age.conversation in own and (age.is_open or age.is_held):
            what = "a worker has it" if age.is_held else "its turn is open"
            raise SpecError(
                f"conversation {age.conversation!r} cannot be deleted now: {what}",
                hint="let the turn end, or end it: toolchart cancel ID; nothing was deleted",
            )
    for parent, forks in read_forks(store).items():
        for fork in forks:
            if parent in own and fork not in own:
                raise SpecError(
                    f"conversation {fork!r} is a fork of {parent!r} and shares its records",
                    hint="delete the fork first",
                )


def delete_owned(store: Store, owner: str, names: Sequence[str]) -> None:
    """Delete conversations that `list_owned` gave, in one commit, and clear the free space of a file.

    Raises:
        SpecError: `require_deletable` refuses them, or the owner has begun another conversation meanwhile;
            then those that were named are gone.
        LeaseHeld: a worker has just taken one of them; nothing was deleted.
    """
    require_deletable(store, names)
    if names:
        store.delete_many(names)
    store.vacuum()
    if begun := list_owned(store, owner):
        raise SpecError(
            f"the owner has begun conversation {begun[0]!r} meanwhile",
            hint="the others are deleted; keep the owner from beginning more, and delete again",
        )


def delete_conversation(store: Store, conversation: str) -> list[str]:
    """Delete a conversation with the agents that it runs and the contexts of their turns, in one commit.

    The free space of a file keeps the bytes until something writes over them, or `Store.vacuum` does.

    Returns:
        The ids of what was deleted.

    Raises:
        NotFound: there is no such conversation.
        SpecError: it is an agent of another one, or `require_deletable` refuses it; nothing was deleted.
        LeaseHeld: a worker has just taken it; nothing was deleted.
        LogDamaged: it, or an agent that it runs, cannot be read.
    """
    if store.read_last_line(conversation) is None:
        raise NotFound(conversation)
    if (link := read_parent(store, conversation)) is not None:
        raise SpecError(
            f"conversation {conversation!r} is a child of {link['conversation']!r}",
            hint="it goes with its parent; nothing was deleted",
        )
    family = [name for _, name in iterate_family(store, conversation)]
    contexts = [name for name in map(name_context, family) if store.read_last_line(name) is not None]
    names = [*family, *contexts]
    require_deletable(store, names)
    store.delete_many(names)
    return names
