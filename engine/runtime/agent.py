"""One agent, ready to run: its spec, chart, tools, hosts and conversations on a log.

An engine has one agent, and each agent has those that its chart runs as children. They share the log, the
clock and everything else that the program gave the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from toolchart.engine.log.family import find_asking_hash, name_context
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.runtime.agent_tools import (
    ChartFunctions,
    build_agent_tools,
    list_chart_variables,
    offer_functions,
    offer_further_tools,
    select_tool_functions,
    select_variables,
)
from toolchart.engine.runtime.allowed_effects import AllowedEffects
from toolchart.engine.runtime.answer_form import AnswerType
from toolchart.engine.runtime.children import ChildConversations
from toolchart.engine.runtime.conversations import Conversations
from toolchart.engine.runtime.driver import Driver
from toolchart.engine.runtime.model_hosts import ModelHosts
from toolchart.engine.runtime.parts import Parts, TurnOptions, list_children
from toolchart.engine.runtime.people import DecisionDesk
from toolchart.engine.telemetry.debug_files import DebugFiles, apply_strict_switch, open_debug_files
from toolchart.providers.entries import check_host_tools
from toolchart.providers.prices import build_pricer
from toolchart.providers.registry import check_batch
from toolchart.specs.charts import load_spec_chart
from toolchart.specs.chat_messages import read_history
from toolchart.specs.declared_effects import EffectResolver
from toolchart.specs.models import AgentSpec, Handler
from toolchart.specs.secrets import remember_spec_secrets
from toolchart.specs.sections.debug import read_debug_switches
from toolchart.specs.turn_plan import (
    complete_plan,
    needs_preparation,
    plan_settings,
    plan_turn,
    select_handler,
)
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.chart.loading import Chart
from toolchart.states.content import ContentPart, add_text
from toolchart.states.errors import SpecError
from toolchart.states.events import Settings, TurnStarted
from toolchart.states.flows.parameters import RunAgentParameters
from toolchart.states.flows.templates import list_template_variables, look_up_variable
from toolchart.states.messages import Message
from toolchart.states.ports import Store
from toolchart.tools.definition import Tool, ToolFailure
from toolchart.tools.manager import ToolManager
from toolchart.tools.services import Search
from toolchart.workers.error_text import describe_error

if TYPE_CHECKING:
    from toolchart.tools.sources.attachments import Attachment

_SECTIONS_WITH_SECRETS = {"llms", "tools", "rag_services", "responses"}


class Agent:
    """One agent and its conversations.

    Args:
        parts: what the program gave the engine.
        base: for a child of the same spec: its parent, whose tools and hosts it uses.
        tools: the tools, where they are not those of the base.

    Raises:
        SpecError: the spec or its chart cannot be used.
    """

    def __init__(
        self, spec: AgentSpec, parts: Parts, base: Agent | None = None, tools: ToolManager | None = None
    ) -> None:
        functions = select_tool_functions(parts.functions)
        self.spec = spec = apply_strict_switch(offer_functions(spec, functions))
        remember_spec_secrets(spec.model_dump(include=_SECTIONS_WITH_SECRETS, exclude_unset=True))
        self._given_parts = parts
        self._base = base
        self._settings: dict[tuple[int, str | None, tuple[str, ...]], tuple[Settings, tuple[str, ...]]] = {}
        """Planned settings of turns, with their warnings."""
        self._children: dict[str, Agent] = {}
        self._context_agents: dict[bool, Agent] = {}
        """The agents that find the context of a turn, by whether they ask for the topic."""
        spec_folder = Path(spec.source).parent if spec.source else None
        self._functions = ChartFunctions(parts.functions, spec_folder)
        resolver = EffectResolver(spec, self._functions.load_function, parts.outputs)
        self.chart: Chart = (
            load_agent_chart(spec, resolver) if base is None else load_spec_chart(spec, resolver)
        )
        self._template_variables = list_chart_variables(self.chart)
        if tools is None:
            tools = (
                base.tools
                if base is not None
                else build_agent_tools(spec, functions, parts.services, spec_folder)
            )
        self.tools: ToolManager = tools
        for index, handler in enumerate(spec.responses):
            if handler.host_tools and handler.llm in spec.llms:
                place = f"responses[{index}].host_tools"
                check_host_tools(handler.host_tools, spec.llms[handler.llm], place)
            if handler.batch and handler.llm in spec.llms and handler.llm not in parts.providers:
                check_batch(spec.llms[handler.llm], f"responses[{index}].batch")
        self.debug_files: DebugFiles | None = (
            base.debug_files if base is not None else open_debug_files(spec, spec_folder or Path())
        )
        self.hosts: ModelHosts = (
            base.hosts if base is not None else ModelHosts(spec, parts.providers, spec_folder)
        )
        self.decisions = DecisionDesk(
            tools=self.tools,
            clock=parts.clock,
            signer=parts.signer,
            find_asking_record=self._find_asking_record,
        )
        self.parts = replace(
            parts,
            decisions=self.decisions,
            price=build_pricer(spec, spec_folder),
            allowed_effects=AllowedEffects(self.chart, spec.responses),
            get_function=self._functions.get_function,
            output_classes=resolver.output_classes,
            get_provider=self.hosts.get_provider,
            debug_files=self.debug_files,
            calls_agents=any(tool.agent is not None for tool in tools.registry),
            # Deltas may cut a secret in two, so a redacted log does not keep them.
            keep_deltas=spec.log_deltas and not spec.redact,
            keep_answers=spec.log_answers or read_debug_switches(spec.debug).raw_responses,
        )
        """What the program gave, with what this agent adds; its children get what the program gave."""

    def _find_asking_record(self, conversation: str, effect: int) -> str:
        return find_asking_hash(self._store, conversation, effect)

    def with_tools(self, tools: Sequence[Tool]) -> Agent:
        """This agent with further tools, which each handler offers; its hosts stay those of this one.

        Raises:
            SpecError: a tool has the name of one that exists.
        """
        spec = offer_further_tools(self.spec, [tool.name for tool in tools])
        return Agent(spec, self._given_parts, self, self.tools.with_tools(tools))

    def open_conversations(self, store: Store, log: GroupCommit) -> None:
        """Make `conversations`, those of this agent on a log."""
        self._store, self._log = store, log
        children = ChildConversations(store, log, self.parts, self.get_child, lambda: self.conversations)
        self.conversations = Conversations(
            spec=self.spec,
            chart=self.chart,
            tools=self.tools,
            store=store,
            log=log,
            parts=replace(self.parts, children=children),
            function_sources=self._functions.list_sources(self.chart),
        )

    def get_child(self, agent: Mapping[str, Any]) -> Agent:
        """The agent that an effect names by `handler`, `spec` or `chart`; made when it is first needed.

        Raises:
            SpecError: it cannot be used, or the chart of this agent does not run it. So a log alone, which
                may name any agent, starts none.
        """
        from toolchart.specs.child_agents import build_child_spec, describe_agent

        runs = [row.parameters for row in self.chart.vocabulary.declared.values()]
        declared = [describe_agent(run) for run in runs if isinstance(run, RunAgentParameters)]
        declared += [tool.agent for tool in self.tools.registry if tool.agent is not None]
        if agent not in declared:
            raise SpecError("the chart of the agent does not run this child any more")
        key = repr(sorted((name, repr(value)) for name, value in agent.items()))
        if key not in self._children:
            base = None if agent.get("spec") else self
            child = Agent(build_child_spec(self.spec, agent), self._given_parts, base)
            child.open_conversations(self._store, self._log)
            self._children[key] = child
        return self._children[key]

    def list_running_drivers(self, conversation: str) -> list[Driver]:
        """The driver of a conversation whose turn runs now, and those of its children; or none."""
        driver = self.conversations.find_running_driver(conversation)
        children = self._children.values()
        if driver is None:
            for child in children:
                if drivers := child.list_running_drivers(conversation):
                    return drivers
            return []
        drivers = [driver]
        for task in list_children(driver.snapshot, conversation):
            for child in children:
                drivers += child.list_running_drivers(task.conversation)
        return drivers

    def list_all_running_drivers(self) -> list[Driver]:
        """The drivers of all turns that run now, those of children included."""
        children = [child.list_all_running_drivers() for child in self._children.values()]
        own = self.conversations.list_running_drivers()
        return [*own, *(driver for drivers in children for driver in drivers)]

    async def plan_turn(
        self, conversation: str, message: str, options: TurnOptions, form: AnswerType | None = None
    ) -> TurnStarted:
        """The `turn_started` event of a message, with the handler that its variables and its context select.

        Args:
            form: the type that the program demands of the answer.

        Raises:
            SpecError: there is no handler, prompt, host or model for it, an attachment or the history cannot
                be read, or the conversation has messages already and takes no history.
        """
        values = self._build_values(message, options)
        warnings: tuple[str, ...] = ()
        if earlier_messages := options.get("history"):
            self.require_no_messages(conversation)  # it may have begun meanwhile
            options = {**options, "history": read_history(earlier_messages)}
        if needs_preparation(self.spec):
            history = cast("Sequence[Message]", options.get("history") or ())
            context, warnings = await self._find_context(conversation, message, values, history)
            values = {**context, **values}
        handler = select_handler(self.spec, values, options.get("handler"))
        event = await self._plan_handler(handler, values, options, form)
        return replace(event, warnings=(*warnings, *event.warnings)) if warnings else event

    async def _plan_handler(
        self, handler: Handler, values: Mapping[str, Any], options: TurnOptions, form: AnswerType | None
    ) -> TurnStarted:
        """The `turn_started` event of a message under a handler; raises as `plan_turn`."""
        earlier_messages, attachments = options.get("history"), options.get("attachments", ())
        history = read_history(earlier_messages) if earlier_messages else None
        llm, model, messages = options.get("llm"), options.get("model"), tuple(history or ())
        given = options.get("dependencies")
        given = self.parts.dependencies if given is None else given
        event = await self.build_turn_started(handler, values, messages, llm, model, attachments, given)
        if history is not None and history.warnings:
            event = replace(event, warnings=(*history.warnings, *event.warnings))
        if form is None:
            return event
        settings = replace(event.settings, options=form.add_to(event.settings.options))
        return replace(event, settings=settings)

    async def outline_turns(
        self, message: str, options: TurnOptions, form: AnswerType | None, handler: str | None
    ) -> list[TurnStarted]:
        """The `turn_started` events that a message may have, without asking models and searching documents.

        Where these would find a variable, `CONTEXT_MARK` stands for it. Where they would also choose the
        handler, there is an event for each handler.

        Args:
            handler: name of the handler that was chosen then, empty for one without a name; None: not known.

        Raises:
            SpecError: as `plan_turn`.
        """
        values = self._build_values(message, options)
        finds_context = needs_preparation(self.spec) and not values.keys() & GIVEN_CONTEXT
        handlers = self.spec.responses
        if not finds_context or options.get("handler"):
            handlers = [select_handler(self.spec, values, options.get("handler"))]
        elif handler is not None:
            handlers = [each for each in handlers if (each.name or "") == handler]
        events = []
        for each in handlers:
            names = {RAG_VARIABLE}
            if finds_context:
                names |= {*list_template_variables(each.prompt or ""), *self._template_variables}
                names -= {"service"}
            found = {name: CONTEXT_MARK for name in names if look_up_variable(values, name) is None}
            events.append(await self._plan_handler(each, {**found, **values}, options, form))
        return events

    def require_no_messages(self, conversation: str) -> None:
        """Refuse earlier messages from elsewhere for a conversation that has some of its own.

        Raises:
            SpecError: it has.
        """
        if self.conversations.read_messages(conversation):
            raise SpecError(
                f"the conversation {conversation!r} has messages already, and takes no history",
                hint="leave the history out to go on with it, or name a new conversation",
            )

    def check_turn(self, message: str, options: TurnOptions) -> None:
        """Check what can be known of a message before models are asked and documents searched.

        Raises:
            SpecError: there is no handler, host or model for it.
        """
        if needs_preparation(self.spec) and not options.get("handler"):
            return
        values = self._build_values(message, options)
        handler = select_handler(self.spec, values, options.get("handler"))
        names, aliases = self.tools.names(), self.tools.aliases
        llm, model = options.get("llm"), options.get("model")
        plan_turn(self.spec, handler, values, names, aliases=aliases, llm=llm, model=model)

    def _build_values(self, message: str, options: TurnOptions) -> dict[str, Any]:
        """The values that select a handler and fill its prompt, without those of the context."""
        profile = {"profile": self.spec.profile} if self.spec.profile else {}
        return {**profile, **(options.get("variables") or {}), "user_message": message}

    async def _find_context(
        self, conversation: str, message: str, variables: Mapping[str, Any], history: Sequence[Message]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Topic, documents and intent of a message, found in the conversation `ID.context`; and warnings."""
        from toolchart.engine.runtime.turn_context import build_search_variables, read_context

        if variables.keys() & GIVEN_CONTEXT:
            return {}, ()
        earlier_messages = self.conversations.read_messages(conversation) or history
        agent = self._get_context_agent(is_first=not earlier_messages)
        name = name_context(conversation)
        if self.spec.topic and "currentTopic" in (self.spec.topic.prompt or ""):
            topic_results = agent.conversations.read_results(name).get("topic", {})
            variables = {"current_topic": topic_results.get("topic_summary"), **variables}
        values = build_search_variables(message, variables, earlier_messages)
        turn_started = await agent.build_turn_started(agent.spec.responses[0], values)
        self._log.cover_child(name, conversation)
        await agent.conversations.end_open_turn(name)
        with self._log:
            driver = agent.conversations.open_driver(name, turn_started.settings.service)
            snapshot = await agent.conversations.run_driver(name, driver, turn_started)
        return read_context(snapshot, message)

    def _get_context_agent(self, *, is_first: bool) -> Agent:
        from toolchart.engine.runtime.turn_context import make_search_function
        from toolchart.specs.sections.preparation import build_preparation_spec

        if is_first not in self._context_agents:
            asks_topic = not is_first or self.spec.topic is not None
            spec = build_preparation_spec(self.spec, asks_topic=asks_topic, is_first=is_first)
            parts = replace(
                self._given_parts,
                functions=[make_search_function(self.spec)],
                outputs=None,
                approver=None,
                asker=None,
                observer=None,
            )
            agent = Agent(spec, parts, self)
            agent.open_conversations(self._store, self._log)
            self._context_agents[is_first] = agent
        return self._context_agents[is_first]

    async def build_turn_started(
        self,
        handler: Handler,
        variables: Mapping[str, Any],
        history: tuple[Message, ...] = (),
        llm: str | None = None,
        model: str | None = None,
        attachments: Sequence[Attachment] = (),
        dependencies: Any = None,
    ) -> TurnStarted:
        """The `turn_started` event of a message under a handler.

        Args:
            dependencies: what the functions that write variables of its prompt get.

        Raises:
            SpecError: the message is no text, there is no prompt, host or model for it, an attachment cannot
                be read, or a function that writes a variable has failed.
        """
        message, warnings = variables["user_message"], self.tools.warnings
        check_message(message)
        if self.parts.prompt_variables:
            variables = await self._write_variables(handler, variables, dependencies)
        values = variables
        parts: tuple[ContentPart, ...] = ()
        if handler.prompt and RAG_VARIABLE in handler.prompt:
            values, problems = await fill_rag_context(handler.prompt, variables, self.tools.search)
            warnings = (*warnings, *problems)
        if attachments:
            from toolchart.tools.sources.attachments import load_attachments

            parts = add_text(message, await load_attachments(attachments))
        plan = complete_plan(self.spec, handler, values, *self._plan_settings(handler, llm, model))
        recorded_names = self._template_variables
        # The prompt is recorded as it was filled. What a client has said for it is read back by itself.
        if INSTRUCTIONS in variables and INSTRUCTIONS in list_template_variables(handler.prompt or ""):
            recorded_names |= {INSTRUCTIONS}
        return TurnStarted(
            message=message,
            parts=parts,
            system=plan.system,
            variables=select_variables(recorded_names, variables),
            history=history,
            settings=plan.settings,
            handler=handler.name or "",
            warnings=(*warnings, *plan.warnings),
        )

    async def _write_variables(
        self, handler: Handler, variables: Mapping[str, Any], dependencies: Any
    ) -> Mapping[str, Any]:
        """The variables with those that the prompt or the chart names and a function of the program writes.

        Raises:
            SpecError: a function has failed.
        """
        from toolchart.engine.runtime.prompt_context import PromptContext, write_variable

        slots = list_template_variables(handler.prompt or "")
        names = {*(slot.partition(".")[0] for slot in slots), *self._template_variables}
        functions = self.parts.prompt_variables
        context = PromptContext(
            message=variables["user_message"], variables=variables, dependencies=dependencies
        )
        written = {
            name: await write_variable(functions[name], context, name)
            for name in functions
            if name in names and variables.get(name) is None
        }
        return {**variables, **written}

    def _plan_settings(
        self, handler: Handler, llm: str | None, model: str | None
    ) -> tuple[Settings, tuple[str, ...]]:
        """The settings of a turn, and warnings; planned once for each handler, host and list of tools.

        A model that the caller names may be any text, so such plans are not kept.
        """
        names = self.tools.names()
        key = (id(handler), llm, names)  # a handler lives as long as the spec of this agent
        plan = self._settings.get(key) if model is None else None
        if plan is None:
            aliases = self.tools.aliases
            plan = plan_settings(self.spec, handler, names, aliases=aliases, llm=llm, model=model)
            if model is None:
                self._settings[key] = plan
        return plan

    async def aclose(self) -> None:
        """Close connections, those of the children included."""
        for child in self._children.values():
            await child.aclose()
        if self._base is None:
            try:
                await self.hosts.aclose()
            finally:
                self.tools.close()


def check_message(message: Any) -> None:
    """Refuse a message of a user that is no text: the log would hold its description.

    Raises:
        SpecError: it is none.
    """
    if not isinstance(message, str):
        raise SpecError(f"a message is a text, not {type(message).__name__}")


# --------------------------------------------------------------------------------------------------
# Fills `{{rag_context}}` in a prompt with document passages that match the user's message.

RAG_VARIABLE = "rag_context"

INSTRUCTIONS = "instructions"
"""The variable of a prompt that system messages and instructions of the clients of a server fill."""

GIVEN_CONTEXT = frozenset({"rag_results", "intent"})
"""Variables of a caller that has found the context itself: then nothing is searched or asked."""

CONTEXT_MARK = "\ue000"
"""Stands in the outline of a turn for what models and searches find for it."""


async def fill_rag_context(
    prompt: str | None, variables: Mapping[str, Any], search: Search | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The variables with `rag_context` added where the prompt uses it, and warnings.

    A value that the caller passed is kept. Without `search` nothing is added. Where the search fails,
    `rag_context` is empty and a warning names the reason; the turn continues.
    """
    values = dict(variables)
    if search is None or not prompt or RAG_VARIABLE not in list_template_variables(prompt):
        return values, ()
    if look_up_variable(values, RAG_VARIABLE) is not None:
        return values, ()
    from toolchart.tools.sources.documents import build_rag_context

    try:
        text = await asyncio.to_thread(build_rag_context, search, str(values.get("user_message", "")))
    except Exception as error:
        # A user's search function may raise any exception; it must not end the turn.
        reason = str(error) if isinstance(error, ToolFailure) else describe_error(error)
        return {**values, RAG_VARIABLE: ""}, (f"the documents could not be searched: {reason}",)
    return {**values, RAG_VARIABLE: text}, ()
