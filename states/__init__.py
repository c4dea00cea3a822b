"""The pure half: what an agent is and does, without any work.

A module imports only from rooms below its own; a contract of import-linter holds this order, which is the
order of what a step needs, from the last to the first:

    proofs                   what holds in every run of a chart: `check`, bounds, migration
    core.step                the transition function
    machine, library_hooks, compiler    which transition an event fires
    diagram                  charts as pictures and text
    core                     the two halves of a step: reduce an event, build effects; their rows
    chart                    a chart and its rules
    flows                    declared effects: parameters, results, templates, compaction
    calls                    the calls of a reply
    vocabulary, facts        the tables of effects, events and facts
    snapshot                 the state of a conversation
    effects, events          what the core asks for, and what happens
    message_list, messages   the conversation
    descriptors              rows of tables, and tables that other packages extend
"""
