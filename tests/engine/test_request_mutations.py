"""Each change of what a model is sent is found by replay: no patch of the core or of a wire map survives.

The conversations of `proved_conversations.py` are recorded once by unpatched code. Each test patches the code
in one place and replays them; at least one must differ. The bodies are compared as `replay` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from importlib import import_module

import pytest
from core_patches import INNER_PATCHES, REQUEST_PATCHES, VIEW_PATCHES, CorePatch
from proved_conversations import HOSTS, record_conversations, record_exceptions
from wire_patches import CLIENTS, COMMON, OWN, Wrap, edit_result, find_owner

from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime.performers import EffectPerformer
from toolchart.engine.runtime.wire_replay import WireComparison
from toolchart.states.errors import ReplayMismatch
from toolchart.states.ports import Store

NAMES = ("scripted", "early leave", "text fallback", *(f"{name}, forked" for name in HOSTS), *HOSTS)

WIRE_PATCHES = [
    *(
        pytest.param(entry, module, name, wrap, id=f"{entry}: {change}")
        for entry, (module, name) in CLIENTS.items()
        for change, wrap in COMMON.items()
    ),
    *(
        pytest.param(*row, id=f"{row[0]}: {row[2].strip('_')} {number}")
        for number, row in enumerate(OWN, start=1)
        if row[0] in HOSTS
    ),
]


@pytest.fixture(scope="module")
def store() -> Store:
    """The log with all conversations, recorded by unpatched code."""
    return record_conversations()


def find_difference(store: Store, names: Iterable[str], *, wire: bool) -> str | None:
    """Conversation and pointer of the first difference that replay finds; None where all is equal."""
    for name in names:
        steps = replay_conversation(store, name)
        try:
            for _ in WireComparison().compare_steps(steps) if wire else steps:
                pass
        except ReplayMismatch as mismatch:
            return f"{name}: {mismatch.pointer}"
    return None


def patch_core(patch: CorePatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the wrapper around what the patch names."""
    place, name, wrap = patch
    module, _, class_name = place.partition(":")
    room = "core." if module in ("step", "reduce", "requests") else ""
    owner = import_module(f"toolchart.states.{room}{module}")
    owner = getattr(owner, class_name) if class_name else owner
    monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))


@pytest.mark.parametrize("change", [*REQUEST_PATCHES, *INNER_PATCHES])
def test_replay_finds_a_change_of_the_core(
    change: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN 8: with this patch at least one recorded request is another one."""
    patch_core({**REQUEST_PATCHES, **INNER_PATCHES}[change], monkeypatch)
    assert find_difference(store, NAMES, wire=False) is not None


@pytest.mark.parametrize("change", VIEW_PATCHES)
def test_the_bodies_show_what_an_adapter_sees(
    change: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN 8: a patch that leaves the digest of a request and changes what adapters read is found."""
    patch_core(VIEW_PATCHES[change], monkeypatch)
    assert find_difference(store, NAMES, wire=True) is not None


@pytest.mark.parametrize(("entry", "place", "name", "wrap"), WIRE_PATCHES)
def test_wire_replay_finds_a_change_of_an_adapter(
    entry: str, place: str, name: str, wrap: Wrap, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN 7.3: with this patch the host of this entry would have been sent another body."""
    owner = find_owner(place)
    monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))
    difference = find_difference(store, [entry, f"{entry}, forked"], wire=True)
    assert difference is not None
    assert difference.endswith("wire_digest")


# -- the other way round: recorded by changed code ---------------------------------------------------


@pytest.mark.parametrize("change", ["no system prompt", "another model", "no last message", "no options"])
def test_replay_finds_what_a_patched_core_had_sent(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 8: unpatched code refuses the log of a core that sent something else."""
    changed_store = open_store("memory")
    with monkeypatch.context() as patches:
        patch_core(REQUEST_PATCHES[change], patches)
        record_exceptions(changed_store)
    assert find_difference(changed_store, ["scripted"], wire=False) == "scripted: /asks/0/digest"


@pytest.mark.parametrize("change", ["no system prompt", "another model", "no last message", "no options"])
def test_wire_replay_finds_what_a_patched_driver_had_sent(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN 8: a request that is changed behind the core is not in the asks, but its body is reported."""
    _, _, wrap = REQUEST_PATCHES[change]
    request_answer = EffectPerformer._request_answer
    changed_store = open_store("memory")
    with monkeypatch.context() as patches:
        patches.setattr(
            EffectPerformer,
            "_request_answer",
            lambda self, effect, dependencies: request_answer(self, wrap(lambda: effect)(), dependencies),
        )
        record_exceptions(changed_store)
    assert find_difference(changed_store, ["scripted"], wire=False) is None
    assert find_difference(changed_store, ["scripted"], wire=True) == "scripted: /event/reply/wire_digest"


def test_each_table_has_forty_patches() -> None:
    """Issue 10: core and wire maps are patched in at least 40 ways each."""
    assert len(REQUEST_PATCHES) + len(INNER_PATCHES) >= 80
    assert len(WIRE_PATCHES) >= 80


# -- controls --------------------------------------------------------------------------------------


def test_unpatched_code_replays_every_request_and_body(store: Store) -> None:
    """The twin of the tests above: all is equal, and no request and no body is left out."""
    counts: Counter[str] = Counter()
    for name in NAMES:
        comparison = WireComparison()
        steps = comparison.compare_steps(replay_conversation(store, name))
        records = [replayed_step.record for replayed_step in steps]
        counts["requests"] += sum(ask.messages is not None for record in records for ask in record.asks)
        counts["answers"] += sum(record.event["type"] in ("replied", "failed") for record in records)
        counts["bodies"] += comparison.bodies
    assert counts == {"requests": 82, "answers": 82, "bodies": 82}


def test_a_patch_of_the_core_without_effect_survives(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: code that builds equal requests is not accused."""
    for place, name in (("requests", "_build_call"), ("reduce", "Message"), ("calls", "_append_results")):
        patch_core((place, name, edit_result(lambda result: result)), monkeypatch)
    view = ("message_list:MessageList", "__iter__", edit_result(lambda items: iter(list(items))))
    patch_core(view, monkeypatch)
    assert find_difference(store, NAMES, wire=True) is None


def test_a_patch_of_a_wire_map_without_effect_survives(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: an adapter that builds equal bodies is not accused."""
    for module, name in CLIENTS.values():
        owner = find_owner(module)
        monkeypatch.setattr(owner, name, edit_result(dict)(getattr(owner, name)))
    assert find_difference(store, HOSTS, wire=True) is None
