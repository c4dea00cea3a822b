"""The translation of a chart to Promela, the language of the model checker Spin: a second opinion.

`check` explores a chart with the machine and decides guards with a solver. The translation uses none of
these: it writes down a second time how statecharts move (`steps.py`), what events do to facts (`events.py`)
and when effects are open (`model.py`). Spin then tries every case. Where the two disagree, one is wrong.
"""

from promela.model import SMALL_LIMITS, Claim, list_claims, write_promela

__all__ = ["SMALL_LIMITS", "Claim", "list_claims", "write_promela"]
