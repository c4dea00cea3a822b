"""One conversation with each flow that ships, which its rehearsed model leads to its end."""

from __future__ import annotations

CONVERSATIONS: dict[str, tuple[list[str], str, str]] = {
    "reflection": (["tides"], "published", "Tides follow the moon. The sea rises twice a day."),
    "plan_and_review": (["What is 6 * 7?"], "finished", "6 * 7 = 42, checked."),
    "approval_deadline": (["pay"], "awaiting_approval", ""),
    "triage": (["A question about my bill", "Number 12", "thank you"], "finished", "You are welcome."),
    "judge": (["Is it open?"], "judged", "Both answers say the same."),
    "specialist": (["tides", "thank you"], "finished", "You are welcome."),
    "map_reduce": (
        ["Why are there tides?"],
        "finished",
        "The moon pulls, the sun helps, and the shore decides.",
    ),
    "long_conversation": (
        [
            "My number is 17. " + "And there is more to tell. " * 4,
            "More of it. " * 9,
            "Which number did I say?",
        ],
        "finished",
        "You said 17.",
    ),
    "long_results": (
        ["Which room is free on Monday?", "And on Friday?"],
        "finished",
        "The calendar of Friday says: Room 4 is free from 10:00 to 11:00; all other rooms are taken.",
    ),
    "fallback": (["what is 2 + 3"], "finished", "It is 5."),
    "interview": (["Hello", "Ann", "Rome"], "finished", "Thank you. A name and a place."),
    "action_selector": (["file the invoice"], "reported", "Done."),
    "plan_then_execute": (["sums"], "finished", "2 steps done, 0 failed."),
    "dual_model": (["I am angry"], "finished", "Noted: complaint, urgency 5."),
    "context_minimisation": (
        ["price of a chair"],
        "finished",
        "The price of our chair is described on its page.",
    ),
}
"""By flow: the user's messages, the state at the end, and the last answer."""
