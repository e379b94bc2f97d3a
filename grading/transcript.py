"""Agent transcripts as actions: what the agent said, which tools it called, and what came back.

Read are Claude Code's, Codex's and generic JSONL, line by line. Texts that a provider streamed token by token are
joined before anything is matched. A transcript is hostile text: a line that is no JSON object is counted and passed
over, and nothing in it is trusted to describe itself.

Source: docs/method.md "Findings", `transcript.reads_other_run`.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

MAX_TRANSCRIPT_BYTES = 64 * 1024 * 1024
MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_ACTIONS = 50_000
_MAX_DEPTH = 6
_OUTPUT_CHARS = 100_000
_DECODER: "msgspec.json.Decoder[dict[str, Any]]" = msgspec.json.Decoder(dict[str, Any])
_SHELLS = frozenset({"bash", "shell", "local_shell", "exec", "exec_command", "run_terminal_cmd", "terminal", "execute"})
_CALL_TYPES = frozenset(
    {"tool_use", "function_call", "custom_tool_call", "local_shell_call", "tool_call", "command_execution", "tool"}
)
_RESULT_TYPES = frozenset({"tool_result", "function_call_output", "custom_tool_call_output", "tool_output"})
_TEXT_TYPES = frozenset({"text", "thinking", "reasoning", "agent_message", "output_text", "message", "thought"})
_INPUT_KEYS = ("input", "arguments", "args", "parameters", "params", "action")
_OUTPUT_KEYS = ("output", "aggregated_output", "result", "content", "stdout", "response")


class Action(msgspec.Struct, frozen=True):
    """One act of a session.

    kind     ``say`` for what the agent wrote, ``call`` for a tool call
    tool     the tool's name in lower case; ``shell`` for every kind of shell
    command  what a shell was given; empty for other tools
    paths    the paths that another tool was given
    text     what was said, or what was written into a file
    output   what came back, None where nothing did
    """

    kind: Literal["say", "call"]
    line: int
    tool: str = ""
    command: str = ""
    paths: tuple[str, ...] = ()
    text: str = ""
    output: str | None = None
    is_error: bool = False


class Transcript(msgspec.Struct, frozen=True):
    """A session's actions in order, the models that answered, and how many lines could not be read."""

    actions: tuple[Action, ...]
    models: tuple[str, ...]
    unreadable: int


@lru_cache(maxsize=16)
def read_transcript(data: bytes) -> Transcript:
    """Return what a transcript says. Never raises."""
    reader = _Reader()
    for number, line in enumerate(data[:MAX_TRANSCRIPT_BYTES].splitlines(), 1):
        if line.strip():
            reader.read_line(line, number)
        if len(reader.calls) + len(reader.said) > MAX_ACTIONS:
            reader.unreadable += 1
            break
    return reader.finish()


class _Reader:
    """What has been read of one transcript so far."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.by_id: dict[str, dict[str, Any]] = {}
        self.said: list[Action] = []
        self.models: dict[str, None] = {}
        self.unreadable = 0
        self.fragments: list[str] = []
        self.fragment_line = 0

    def read_line(self, line: bytes, number: int) -> None:
        try:
            entry = _DECODER.decode(line) if len(line) <= MAX_LINE_BYTES else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            entry = None
        if entry is None:
            self.unreadable += 1
            return
        fragment = _fragment(entry)
        if fragment is None:
            self.flush()
            self.read_entry(entry, number, 0)
        else:
            self.fragment_line = self.fragment_line or number
            self.fragments.append(fragment)

    def flush(self) -> None:
        if self.fragments:
            self.said.append(Action("say", self.fragment_line, text="".join(self.fragments)))
        self.fragments, self.fragment_line = [], 0

    def read_entry(self, entry: Mapping[str, Any], number: int, depth: int) -> None:
        kind = str(entry.get("type"))
        model = entry.get("model")
        if isinstance(model, str) and 0 < len(model) < 200 and entry.get("role", "assistant") == "assistant":
            self.models.setdefault(model)
        if kind in _CALL_TYPES or _is_generic_call(entry):
            self.add_call(entry, number)
        elif kind in _RESULT_TYPES:
            self.add_result(entry)
        elif kind in _TEXT_TYPES and isinstance(text := entry.get("text") or entry.get("thinking"), str):
            if entry.get("role") != "user":
                self.said.append(Action("say", number, text=text))
        elif depth < _MAX_DEPTH and not (kind == "user" and isinstance(entry.get("message"), str)):
            self.read_inner(entry, number, depth)

    def read_inner(self, entry: Mapping[str, Any], number: int, depth: int) -> None:
        """Read what an envelope holds: a message, its content blocks, a payload, an item, a list of tool calls."""
        role = entry.get("role")
        for key in ("message", "content", "payload", "item", "event", "part", "state", "tool_calls", "function"):
            inner = entry.get(key)
            if isinstance(inner, Mapping):
                self.read_entry(inner, number, depth + 1)
            elif isinstance(inner, list):
                for block in inner[:2000]:
                    if isinstance(block, Mapping):
                        self.read_entry({"role": role, **block} if role else block, number, depth + 1)
            elif isinstance(inner, str) and key == "content" and role == "assistant":
                self.said.append(Action("say", number, text=inner))

    def add_call(self, entry: Mapping[str, Any], number: int) -> None:
        function = entry.get("function")
        source = function if isinstance(function, Mapping) else entry
        given = _given(source)
        name = str(
            source.get("name") or source.get("tool") or source.get("tool_name") or entry.get("type") or ""
        ).lower()
        output = _text(next((entry[key] for key in _OUTPUT_KEYS if entry.get(key) is not None), None))
        command = _command(given)
        is_shell = name in _SHELLS or "command" in given or "cmd" in given or entry.get("type") == "command_execution"
        call = {
            "line": number,
            "tool": "shell" if is_shell else name[:100],
            "command": command if is_shell else "",
            "paths": _paths(given),
            "text": "" if is_shell else _written(given),
            "output": output,
            "is_error": _is_failure(entry),
        }
        self.calls.append(call)
        for key in ("id", "call_id", "tool_use_id", "tool_call_id"):
            if isinstance(entry.get(key), str):
                self.by_id[entry[key]] = call

    def add_result(self, entry: Mapping[str, Any]) -> None:
        keys = (entry.get(key) for key in ("tool_use_id", "call_id", "tool_call_id", "id"))
        call = next((self.by_id[key] for key in keys if isinstance(key, str) and key in self.by_id), None)
        if call is not None:
            found = next((entry[key] for key in _OUTPUT_KEYS if entry.get(key) is not None), None)
            call["output"] = (call["output"] or "") + _text(found, default="")
            call["is_error"] = call["is_error"] or _is_failure(entry)

    def finish(self) -> Transcript:
        self.flush()
        actions = [*self.said, *(Action("call", **call) for call in self.calls)]
        return Transcript(tuple(sorted(actions, key=lambda item: item.line)), tuple(self.models), self.unreadable)


def _fragment(entry: Mapping[str, Any]) -> str | None:
    """Return the text of a streamed piece, or None for a whole entry."""
    for key in ("delta", "data"):
        inner = entry.get(key)
        if isinstance(inner, str) and str(entry.get("type", "")) in ("text", "thought", "token", "delta", "chunk"):
            return inner
        if key == "delta" and isinstance(inner, Mapping):
            for name in ("text", "thinking", "partial_json", "content"):
                if isinstance(inner.get(name), str):
                    return str(inner[name])
    return None


def _is_generic_call(entry: Mapping[str, Any]) -> bool:
    has_name = any(isinstance(entry.get(key), str) for key in ("tool", "tool_name"))
    is_function = isinstance(entry.get("function"), Mapping) and "arguments" in entry["function"]
    return is_function or (has_name and any(key in entry for key in _INPUT_KEYS))


def _given(source: Mapping[str, Any]) -> dict[str, Any]:
    for key in _INPUT_KEYS:
        value = source.get(key)
        if isinstance(value, str):
            try:
                value = _DECODER.decode(value.encode("utf-8", "replace"))
            except (msgspec.DecodeError, RecursionError):
                value = {"text": value}
        if isinstance(value, Mapping):
            return dict(value)
    return {"command": source["command"]} if "command" in source else {}


def _command(given: Mapping[str, Any]) -> str:
    value = given.get("command", given.get("cmd", given.get("script", given.get("text", ""))))
    if isinstance(value, list):
        words = [str(word) for word in value]
        is_wrapped = (
            len(words) >= 3 and words[0].rpartition("/")[2] in ("bash", "sh", "zsh") and words[1].startswith("-")
        )
        return words[-1] if is_wrapped else " ".join(words)
    return value if isinstance(value, str) else ""


def _paths(given: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("file_path", "path", "filename", "notebook_path", "target_file", "absolute_path")
    return tuple(value[:1000] for name in names if isinstance(value := given.get(name), str))


def _written(given: Mapping[str, Any]) -> str:
    names = ("content", "new_string", "old_string", "patch", "text", "file_text", "new_str", "old_str")
    return "\n".join(value[:_OUTPUT_CHARS] for name in names if isinstance(value := given.get(name), str))


def _is_failure(entry: Mapping[str, Any]) -> bool:
    return entry.get("is_error") is True or (isinstance(code := entry.get("exit_code"), int) and code != 0)


def _text(value: Any, default: str | None = None) -> Any:
    """Return an output as text: a string, or the texts of its blocks."""
    if isinstance(value, str):
        return value[:_OUTPUT_CHARS]
    if isinstance(value, list):
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in value[:1000]]
        return "\n".join(part for part in parts if isinstance(part, str))[:_OUTPUT_CHARS]
    if isinstance(value, Mapping):
        inner = next(
            (value[key] for key in ("output", "stdout", "text", "content") if isinstance(value.get(key), str)), ""
        )
        return str(inner)[:_OUTPUT_CHARS]
    return default


def transcripts_in(files: Mapping[str, bytes]) -> Iterator[tuple[str, Transcript]]:
    """Yield the transcripts of a run directory by path."""
    for path in sorted(files):
        if path.endswith(".jsonl"):
            yield path, read_transcript(files[path])
