"""Calls Python functions for `call_function`."""

from __future__ import annotations

from toolchart.engine.runtime.flows.port import DriverPort
from toolchart.states.effects import CallFunction
from toolchart.states.errors import NoRecordedAnswer, SpecError
from toolchart.states.events import Failed
from toolchart.states.flows.events import Returned
from toolchart.tools.definition import ToolFailure, ToolPending, ToolTimeout
from toolchart.tools.execution.context import CallContext
from toolchart.tools.execution.runs import run_tool
from toolchart.tools.schemas.output import check_output
from toolchart.tools.sources.effect_functions import EffectFunction


async def call_function(driver: DriverPort, effect: CallFunction, is_resumed: bool) -> None:
    """Call the function and apply `returned`, or `failed` with whatever went wrong.

    Args:
        is_resumed: another worker asked for the effect, so that the function may have run already. One that
            is not idempotent is not called again: it ends as `interrupted`.
    """
    if is_resumed and not effect.idempotent:
        reason = "the process stopped while it may have been running"
        text = driver.snapshot.texts.interrupted.format(reason=reason)
        event: Returned | Failed = _build_failure(driver, effect, "interrupted", text)
    else:
        event = await _request_value(driver, effect)
    driver.apply_event(event)


async def _request_value(driver: DriverPort, effect: CallFunction) -> Returned | Failed:
    """Call the function; the event that says how it ended."""
    get_function = driver.dependencies.get_function
    try:
        if get_function is None:
            raise SpecError(f"there is no function {effect.function!r}")
        function = get_function(effect.function)
        problem = function.check.describe_problem(effect.arguments)
        if problem:
            return _build_failure(driver, effect, "effect", problem.replace("parameter", "argument"))
        value = await run_tool(function.tool, effect.arguments, CallContext(tool=effect.name))
        return _build_return(driver, effect, function, value)
    except NoRecordedAnswer:
        raise
    except ToolTimeout:
        return _build_failure(
            driver, effect, "timeout", f"the function {effect.function!r} did not return in time"
        )
    except ToolPending:
        return _build_failure(
            driver,
            effect,
            "effect",
            f"the function {effect.function!r} gives no value: only a tool may be pending",
        )
    except (ToolFailure, SpecError) as error:
        return _build_failure(driver, effect, "effect", str(error))


def _build_return(
    driver: DriverPort, effect: CallFunction, function: EffectFunction, value: object
) -> Returned | Failed:
    """`returned` with the value as JSON data; `failed` where it is not what the function promises."""
    try:
        data = function.encode(value)
    except ValueError as error:
        return _build_failure(driver, effect, "bad_output", str(error))
    schema = effect.schema
    problem = check_output(data if isinstance(data, dict) else {"content": data}, schema) if schema else None
    if problem:
        return _build_failure(driver, effect, "bad_output", problem)
    return Returned(at=driver.dependencies.clock.now(), effect=effect.id, value=data)


def _build_failure(driver: DriverPort, effect: CallFunction, kind: str, message: str) -> Failed:
    at = driver.dependencies.clock.now()
    return Failed(at=at, effect=effect.id, kind=kind, message=message)
