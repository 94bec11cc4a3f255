"""Errors as OpenAI's API answers them.

Owns `ApiError` and the shape of its body: `{"error": {"message", "type", "param", "code"}}`, always all four. Leaves
sending it to `guard.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_WHERE = re.compile(r"\[([\w.]+)\] ")
# What the engine's error texts call some of the API's fields.
_FIELDS = {"text": "input", "instruct": "instructions", "speaker": "voice", "sampling": "sampler", "generate": None}


class ApiError(Exception):
    """An answer that is an error. param: the field of the request that is to blame. code: for programs to act on."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, object]:
        """What is sent, as JSON."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


class BrokenAnswerError(Exception):
    """An answer that has begun and cannot be finished: the connection is closed without the end that HTTP has."""


def of_value_error(error: ValueError) -> ApiError:
    """What the engine refused, as a 400 that names the field where the text says which."""
    found = _WHERE.match(str(error))
    param: str | None = None
    if found is not None:
        param = found.group(1).rpartition(".")[2]
        param = _FIELDS.get(param, param)
    return ApiError(400, str(error), param=param, code="invalid_value")
