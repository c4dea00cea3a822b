"""A change of the code between a request and its body is seen: each patch of it changes a digest.

`replay` compares the digest that was reported with that of the body that today's code builds. So a
patch that changes no digest of the corpus in `wire_requests.py` would be a change that replay does not see.
"""

from __future__ import annotations

from functools import cache

import pytest
from wire_patches import CLIENTS, COMMON, OWN, Wrap, edit_result, find_owner
from wire_requests import iterate_digests, make_builders

from toolchart.states.ports import BodyBuilder

MUTATIONS = [
    *(
        pytest.param(entry, module, name, wrap, id=f"{entry}: {change}")
        for entry, (module, name) in CLIENTS.items()
        for change, wrap in COMMON.items()
    ),
    *(
        pytest.param(*row, id=f"{row[0]}: {row[2].strip('_')} {number}")
        for number, row in enumerate(OWN, start=1)
    ),
]


@cache
def get_builders() -> dict[str, BodyBuilder]:
    """The builders of all entries; the patches are of functions that these call."""
    return make_builders()


@cache
def get_original_digests() -> dict[str, str]:
    """The digests of the code as it is."""
    return dict(iterate_digests(get_builders()))


@pytest.mark.parametrize(("entry", "place", "name", "wrap"), MUTATIONS)
def test_a_change_of_the_wire_map_changes_a_digest(
    entry: str, place: str, name: str, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN 7.3: with this patch at least one request of the corpus has another digest at this host."""
    originals = get_original_digests()
    owner = find_owner(place)
    monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))
    digests = iterate_digests({entry: get_builders()[entry]})
    assert any(digest != originals[key] for key, digest in digests)


def test_a_patch_without_effect_changes_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: a patch that leaves the body as it is survives."""
    originals = get_original_digests()
    owner = find_owner("openai.client")
    monkeypatch.setattr(owner, "encode_request", edit_result(dict)(owner.encode_request))
    assert dict(iterate_digests(get_builders())) == originals


def test_the_unpatched_code_gives_equal_digests() -> None:
    """The digests depend on nothing but the code; other requests have other digests."""
    assert dict(iterate_digests(make_builders())) == get_original_digests()
    digests = [digest for key, digest in get_original_digests().items() if key.startswith("openai: ")]
    assert len(set(digests)) > len(digests) // 2
    assert len(MUTATIONS) >= 100


def test_streamed_and_whole_bodies_differ_except_where_the_path_says_it() -> None:
    """A streamed body says so; Gemini and Bedrock say it in the path, a script nowhere."""
    digests = get_original_digests()
    alike = {key.partition(":")[0] for key in digests if digests[key] == digests.get(f"{key}, streamed")}
    assert alike == {"gemini", "bedrock", "scripted"}
