"""Turns: what people say to a conversation, who holds it, and what its holder does.

Read it in this order, as a turn goes; each module knows only those below it, and the runtime under them:

    inbox      every message, decision, answer and cancellation comes in here (`put`), at whichever door
    once       a turn that is run once: begun, gone on with, read, or tried again
    recovery   goes on after a crash, when a timer has run out, and with what an inbox has
    parking    what nobody goes on with by itself any more
    lease      one worker holds a conversation; before it gives it back, it takes what came in meanwhile
    turn       what the holder does: takes an item, begins a turn, or goes on with an open one
    items      what may come in, and its form in the inbox of the store

Below stands `engine/runtime`: `conversations` makes the driver, and `driver` runs it until the chart rests.
"""
