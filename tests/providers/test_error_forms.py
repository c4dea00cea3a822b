"""Finish words of compatible hosts, and fields of errors in answers that are none.

The errors themselves are in `failure_corpus.yaml`.
"""

from __future__ import annotations

import pytest

from toolchart.providers.openai.wire import decode_reply as decode_chat
from toolchart.providers.shared.failures import classify_exception


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("model_length", "length"),
        ("model_context_window_exceeded", "length"),
        ("repetition", "length"),
        ("sensitive", "content_filter"),
        ("insufficient_system_resource", "error"),
        ("network_error", "error"),
        ("abort", "error"),
        ("eos_token", "stop"),
    ],
)
def test_finish_words_of_compatible_hosts_have_a_meaning(word: str, reason: str) -> None:
    """S3.3: the finish words of Mistral, Z.AI, DeepSeek, TGI, SGLang and vLLM are known."""
    body = {"choices": [{"message": {"content": "half"}, "finish_reason": word}]}
    reply = decode_chat(body)
    assert (reply.finish_reason, reply.native_reason) == (reason, word)


def test_a_success_that_names_no_error_is_a_reply() -> None:
    """S3.10: `error: null` and MiniMax's status 0 beside an answer are no errors."""
    body = {
        "choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}],
        "error": None,
        "base_resp": {"status_code": 0, "status_msg": ""},
    }
    assert decode_chat(body).content == "yes"


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (TimeoutError(), "timeout"),
        (ConnectionError("refused"), "connection"),
        (ValueError("odd"), "bad_response"),
    ],
)
def test_a_group_of_errors_is_its_first_cause(cause: Exception, kind: str) -> None:
    """What an SDK raises out of a task group is classified by what happened inside."""
    group = ExceptionGroup("unhandled errors in a TaskGroup", [ExceptionGroup("inner", [cause])])
    error, alone = classify_exception(group), classify_exception(cause)
    assert error.kind == kind
    assert (error.kind, error.message, error.retryable) == (alone.kind, alone.message, alone.retryable)
