"""The core: `step.py` moves a conversation, `reduce.py` absorbs the event, `requests.py` builds effects."""
