"""A conversation under other names of states and effects, for a chart that was changed so."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from toolchart.states.snapshot import Snapshot


def rename_parts(snapshot: Snapshot, states: Mapping[str, str], effects: Mapping[str, str]) -> Snapshot:
    """The snapshot with other names; the digest of an effect does not depend on them.

    Args:
        states: by name of a state or a history: its new name. What is missing keeps its name.
        effects: the same of effects.
    """
    if not states and not effects:
        return snapshot
    configuration = snapshot.configuration
    if configuration is not None:
        names = tuple(states.get(name, name) for name in configuration.states)
        history = tuple(
            (states.get(name, name), tuple(states.get(inner, inner) for inner in remembered))
            for name, remembered in configuration.history
        )
        label = "+".join(states.get(name, name) for name in configuration.label.split("+"))
        configuration = replace(configuration, states=names, history=history, label=label)
    open_effects = tuple(
        replace(
            effect, state=states.get(effect.state, effect.state), name=effects.get(effect.name, effect.name)
        )
        for effect in snapshot.open_effects
    )
    return replace(snapshot, configuration=configuration, open_effects=open_effects)
