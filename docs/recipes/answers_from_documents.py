"""Answer questions from the documents in a folder: Markdown, text, HTML or PDF.

`search_documents` finds the best passages by their words, and notices when a file changes. The log has what
was searched and found, so one sees where an answer comes from. What a document says counts as written by
strangers: `agent.check()` proves which risky tools it can reach. With `embeddings` passages are also found by
meaning.
"""

from pathlib import Path

from toolchart import Agent
from toolchart.testing import ScriptedModel, call_tool

DOCUMENTS = {
    "coffee.md": "# Coffee\n\nDescale the machine every three months.\n",
    "heating.md": "# Heating\n\nThe boiler needs a water pressure of 1.5 bar.\n",
    "keys.md": "# Keys\n\nThe spare key hangs in the cellar.\n",
}
manual = Path("manual")
manual.mkdir(exist_ok=True)
for name, text in DOCUMENTS.items():
    (manual / name).write_text(text, "utf-8")

model = ScriptedModel(  # yours: "openai:gpt-5-mini"
    call_tool("search_documents", query="boiler pressure"), "1.5 bar, says heating.md."
)
caretaker = Agent(
    model,
    tools=[{"name": "search_documents", "folder": "manual", "limit": 3}],
    prompt="Answer from the manual alone, and name the file.",
)

turn = caretaker.run("Which pressure does the boiler need?", log="caretaker.db")
print(turn.output)
for call in turn.tool_calls:
    print("searched:", call.params["query"] if call.params else "")
    for hit in call.value["hits"]:
        print(f"found: {hit['file']}, {hit['title']}: {hit['snippet']!r}")
