"""What a record says about an effect that was asked for."""

from __future__ import annotations

import pytest

from toolchart.engine.log.continuation.recorded_asks import _ASK_DETAILS
from toolchart.states import effects
from toolchart.states.effects import Effect, ReviewCalls

OWN_CLASSES = [
    value for value in vars(effects).values() if isinstance(value, type) and issubclass(value, Effect)
]

WITHOUT_DETAILS = {ReviewCalls: "its calls stand in the reply before it"}


@pytest.mark.parametrize("kind", OWN_CLASSES, ids=lambda kind: str(kind.__name__))
def test_a_record_has_what_an_effect_needs(kind: type[Effect]) -> None:
    """An effect with fields of its own has a function that records them; without it they would be lost
    and nothing would say so."""
    own_fields = set(kind.__struct_fields__) - set(Effect.__struct_fields__)
    assert not own_fields or kind in _ASK_DETAILS or kind in WITHOUT_DETAILS
