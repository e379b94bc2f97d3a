"""The OpenAPI document: ninja's, with the content types, headers and parameters that the routes really have."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from leaderboard.api.downloads import CSV, GZIP, NDJSON
from leaderboard.errors import ERRORS, MEDIA_TYPE

_FILES = {".csv": CSV.partition(";")[0], ".ndjson": NDJSON, ".gz": GZIP}
_TEXT, _WHOLE = {"type": "string"}, {"type": "string", "pattern": "^[0-9]+$"}
_READ_HEADERS = {
    "ETag": ("strong validator of this address in the present public state", _TEXT, True),
    "Cache-Control": ("answers may be stored but must be revalidated: scores can be withdrawn", _TEXT, True),
    "Last-Modified": ("when the public state last changed; left out while that second still runs", _TEXT, False),
    "RateLimit": ("what is left of the bucket", _TEXT, False),
    "RateLimit-Policy": ("the bucket's quota and window", _TEXT, False),
}
_PAGE_HEADERS = {"X-Total-Count": ("number of rows that match", _WHOLE, True)}
_JOB_HEADERS = {
    "Location": ("where the grade is", _TEXT, True),
    "RateLimit": ("what is left of the buckets, the minutes of GPU time first", _TEXT, False),
    "RateLimit-Policy": ("the buckets' quotas and windows", _TEXT, False),
}
_LINK = {"Link": ("the next page", _TEXT, False)}


def polish(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with what ninja cannot know."""
    done = deepcopy(document)
    for path, methods in done["paths"].items():
        for method, operation in methods.items():
            _fix_parameters(operation)
            _fix_responses(path, method, operation)
            _name_errors(operation)
    return done


def _fix_parameters(operation: dict[str, Any]) -> None:
    """An absent query parameter is left out: no parameter is ever null."""
    for parameter in operation["parameters"]:
        schema = parameter["schema"]
        kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
        if len(kinds) == 1 and len(kinds) < len(schema["anyOf"]):
            del schema["anyOf"]
            schema.update({name: value for name, value in kinds[0].items() if name not in schema})
        schema.pop("title", None)
        if parameter["in"] == "path":
            parameter["required"] = True


def _fix_responses(path: str, method: str, operation: dict[str, Any]) -> None:
    file_type = next((kind for ending, kind in _FILES.items() if path.endswith(ending)), None)
    operation["responses"] = {str(status): response for status, response in operation["responses"].items()}
    for status, response in operation["responses"].items():
        content = response.get("content", {}).pop("application/json", None)
        if content is None:
            response.pop("content", None)
        elif int(status) >= 400:
            response["content"] = {MEDIA_TYPE: content}
        elif file_type is not None:
            line = content["schema"]
            note = {} if file_type == GZIP else {"description": f"each line: {line.get('$ref', '')}"}
            response["content"] = {file_type: {"schema": {"type": "string", **note}}}
        else:
            response["content"]["application/json"] = content
    if method == "get":
        is_page = file_type is None and (
            "results" in str(operation["operationId"]) or "list_" in operation["operationId"]
        )
        _add_headers(
            operation["responses"]["200"], {**_READ_HEADERS, **({**_PAGE_HEADERS, **_LINK} if is_page else {})}
        )
    for status in ("200", "202"):
        if method == "post" and "202" in operation["responses"]:
            _add_headers(operation["responses"][status], _JOB_HEADERS)


def _add_headers(response: dict[str, Any], headers: dict[str, tuple[str, dict[str, str], bool]]) -> None:
    response["headers"] = {
        name: {"description": text, "schema": schema, "required": required}
        for name, (text, schema, required) in headers.items()
    }


def _name_errors(operation: dict[str, Any]) -> None:
    """Say under each status which codes it may carry."""
    for status, response in operation["responses"].items():
        codes = [code for code, kind in ERRORS.items() if kind.status == int(status)]
        if codes:
            response["description"] = f"{ERRORS[codes[0]].title}: {', '.join(codes)}"


@dataclass(frozen=True, slots=True)
class OperationView:
    """One operation as the documentation page shows it."""

    id: str
    method: str
    path: str
    summary: str
    description: str
    parameters: tuple[dict[str, Any], ...]
    body: tuple[str, ...]
    responses: tuple[tuple[str, str, str], ...]
    needs_token: bool


def list_operations(shown: dict[str, Any]) -> tuple[OperationView, ...]:
    """Return all operations in order of path."""
    return tuple(
        _view(path, method, operation)
        for path, methods in sorted(shown["paths"].items())
        for method, operation in sorted(methods.items())
    )


def _view(path: str, method: str, operation: dict[str, Any]) -> OperationView:
    parameters = tuple(
        {
            "name": parameter["name"],
            "place": parameter["in"],
            "is_required": parameter["required"],
            "text": parameter.get("description", ""),
            "kind": _kind(parameter["schema"]),
        }
        for parameter in operation["parameters"]
    )
    responses = tuple(
        (status, response["description"], ", ".join(response.get("content", {})))
        for status, response in sorted(operation["responses"].items())
    )
    return OperationView(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation["summary"],
        description=operation.get("description", ""),
        parameters=parameters,
        body=tuple(operation.get("requestBody", {}).get("content", {})),
        responses=responses,
        needs_token="security" in operation,
    )


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "minimum" in schema:
        return f"{schema['minimum']} to {schema['maximum']}"
    kinds = [kind.get("format", "") for kind in schema.get("anyOf", [])]
    return " or ".join(kinds) if kinds else str(schema.get("type", ""))
