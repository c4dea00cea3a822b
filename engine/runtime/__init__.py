"""Running conversations: the engine, the driver and what they depend on.

A turn goes down this list, and nothing in it knows what stands above (`pyproject.toml` holds that):

    engine              what a program calls: one turn, its options, and everything about a turn that is open
    handle, streaming   the same for one conversation, and piece by piece
    engine/turns        what comes into a conversation, who holds it, and what its holder does
    agent               the agent's turn plan: handler, prompt, settings, context
    conversations       the driver of the conversation: kept from its last turn, or derived from its log
    children            conversations that a conversation runs
    driver              event, step, record, commit, effect; again, until the chart rests
    performers          what each effect does outside: model, tools, people, time
    result              what the program gets back
    waiting             what an open turn waits for
    parts               everything that the engine was given, in one frozen value
"""
