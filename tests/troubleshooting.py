"""Prints docs/troubleshooting.md: `python -m tests.troubleshooting > docs/troubleshooting.md`.

The messages are read from the source, as templates; docs/troubleshooting.yaml adds what a message does not say itself.
"""

import ast
import dataclasses
import functools
import html
import pathlib
import re
from collections.abc import Iterator

import yaml

from ctrpipe.common.packages import code_files

ROOT = pathlib.Path(__file__).parents[1]
NOTES = ROOT / "docs" / "troubleshooting.yaml"
# Sections and models raise ValueError for what they do not take; load_config and run make one line of it.
RULES = (
    *("pipeline/config/", "models/"),
    *("transforms/log/spec.py", "transforms/log/split.py", "transforms/log/ordering.py"),
    *(
        "transforms/log/side_tables.py",
        "transforms/log/impression_lists.py",
        "transforms/log/section.py",
        "transforms/log/kinds/",
        "transforms/log/times.py",
    ),
    "transforms/histories/settings.py",
)
# No configuration can cause the ValueErrors of these.
INTERNAL = (
    "models/base/feature_map.py",
    "models/base/losses.py",
    "models/text/precision.py",
    "models/layers/encoder_layer.py",
)
# Functions that return a message, or collect messages, for a caller that raises it.
WRITERS = {
    "_explain": "pipeline/config/load.py",
    "_explain_one": "common/failures.py",
    "check_cluster": "pipeline/kubeflow/compile.py",
    "explain_exit": "pipeline/training/process.py",
    "no_saved_model": "common/sessions.py",
}
REASONS = {"error", "strerror", "message", "reason", "error_message", "details", "msg"}
INTRODUCTION = """\
# Troubleshooting

<!-- Printed by `python -m tests.troubleshooting` from the source and docs/troubleshooting.yaml: edit those. -->

A mistake in a command, a configuration or a log ends the command with exit code 2 and one line: what is wrong, where,
and, after the semicolon, what to do. This page lists these lines by topic, with causes and cures. Search it for words
of your line; `<angle brackets>` stand for what differs from case to case.

Exit code 3 names a file with a Python traceback. It is a defect of ctrpipe: please report it with that file.
"""


@dataclasses.dataclass(frozen=True)
class Message:
    """A message for a user's mistake, as a template in the source.

    Attributes:
        file: Path of the source, from the project's root.
        text: The message, with `<name>` instead of what differs from case to case.
    """

    file: str
    text: str


@dataclasses.dataclass(frozen=True)
class Note:
    """The cause and cure of messages.

    Attributes:
        fragments: The note is for messages that contain one of these.
        cause: Why it happens.
        cure: What to do; empty: what the message says after its last semicolon.
    """

    fragments: tuple[str, ...]
    cause: str
    cure: str

    def is_for(self, message: Message) -> bool:
        return any(fragment in message.text for fragment in self.fragments)


@functools.cache
def messages() -> list[Message]:
    """Returns all messages with constant words in the source, each once, in an order independent of file names."""
    texts = {message for path in code_files(ROOT) for message in _messages_in(path)}
    return sorted(texts, key=lambda message: (re.sub("<[^>]*>", "", message.text), message.text, message.file))


@functools.cache
def notes() -> list[Note]:
    """Returns the notes of docs/troubleshooting.yaml in order; the first that fits a message applies."""
    return [
        Note(tuple(entry["messages"]), " ".join(entry["cause"].split()), " ".join(entry.get("cure", "").split()))
        for entry in yaml.safe_load(NOTES.read_text())["notes"]
    ]


@functools.cache
def topics() -> dict[str, list[str]]:
    """Returns the files and folders of each topic."""
    return {topic["title"]: topic["files"] for topic in yaml.safe_load(NOTES.read_text())["topics"]}


def topic_of(message: Message) -> str:
    """Returns the topic with the longest path that begins the path of the message's file; "" without one."""
    places = [(path, title) for title, paths in topics().items() for path in paths if message.file.startswith(path)]
    return max(places, key=lambda place: len(place[0]), default=("", ""))[1]


def cause_and_cure(message: Message) -> tuple[str, str]:
    """Returns the cause and the cure from the notes and the message itself; either may be empty."""
    own = message.text.rpartition("; ")[2] if "; " in message.text else ""
    for note in notes():
        if note.is_for(message):
            return note.cause, note.cure or _sentence(own)
    return "", _sentence(own)


def page() -> str:
    """Returns the page as Markdown: one heading a topic, with a table of its messages."""
    every = messages()
    chapters = [_chapter(title, [message for message in every if topic_of(message) == title]) for title in topics()]
    return "\n".join([INTRODUCTION, *chapters])


def _chapter(title: str, of_topic: list[Message]) -> str:
    rows = [f"| {_code(message.text)} | {' | '.join(map(_cell, cause_and_cure(message)))} |" for message in of_topic]
    header = "| message | cause | cure |\n|---|---|---|"
    return "\n".join([f"## {title}\n", header, *dict.fromkeys(rows)]) + "\n"


def _messages_in(path: pathlib.Path) -> Iterator[Message]:
    file = path.resolve().relative_to(ROOT).as_posix()  # not below the links in ctrpipe/
    tree = ast.parse(path.read_text())
    names = _constants(tree)
    for node in ast.walk(tree):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call) and node.args and _raises_a_mistake(node, file):
            values = [node.args[0]]
            if getattr(node.func, "id", "") == "NotFiniteError" and len(node.args) > 1:
                values = [ast.BinOp(ast.BinOp(values[0], ast.Add(), ast.Constant("; ")), ast.Add(), node.args[1])]
        elif isinstance(node, ast.FunctionDef) and WRITERS.get(node.name) == file:
            values = list(_written(node))
        for value in values:
            text = _template(value, names)
            if _says_something(text):
                yield Message(file, text)


def _written(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yields the values that a function returns, assigns, or appends to a list."""
    for node in ast.walk(function):
        if isinstance(node, ast.Return | ast.Assign) and node.value is not None:
            yield node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            yield node.args[0]


def _raises_a_mistake(call: ast.Call, file: str) -> bool:
    name = getattr(call.func, "id", "")
    return name in ("InputError", "NotFiniteError", "StoreError", "UnreachableError") or (
        name == "ValueError" and file.startswith(RULES) and file not in INTERNAL
    )


def _says_something(text: str) -> bool:
    """Returns whether a template has its own words, and does not only pass on another error's message."""
    return any(character.isalpha() for character in re.sub("<[^>]*>", "", text))


def _constants(tree: ast.Module) -> dict[str, str]:
    """Returns a module's strings by name."""
    constants = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            constants[ast.unparse(node.targets[0])] = node.value.value
    return constants


def _template(value: ast.expr, names: dict[str, str]) -> str:
    """Returns a string expression's constant words, with a placeholder for each other part."""
    match value:
        case ast.Constant(str(text)):
            return text
        case ast.JoinedStr(parts):
            return "".join(_template(part, names) for part in parts)
        case ast.FormattedValue(ast.Name(name)) if name in names:
            return names[name]
        case ast.FormattedValue(ast.Call(ast.Name("did_you_mean" | "_meant"))):
            return ""  # what follows where a name is nearly right
        case ast.FormattedValue(inner):
            return _placeholder(inner)
        case ast.BinOp(left, ast.Add(), right):
            return _template(left, names) + _template(right, names)
    return _placeholder(value)


def _placeholder(value: ast.expr) -> str:
    match value:
        case ast.Constant(constant):
            return str(constant)
        case ast.IfExp(_, ast.Constant(one), ast.Constant(other)):
            return f"{one} (or: {other})"
    name = _name(value)
    return f"<{'reason' if name in REASONS else name.strip('_').replace('_', ' ').lower()}>"


def _name(value: ast.expr) -> str:
    """Returns the name of the value that an expression shows, such as `names` for `', '.join(sorted(names))`."""
    match value:
        case ast.Name(name) | ast.Attribute(_, name):
            return name
        case ast.Call(ast.Name("len")):
            return "number"
        case ast.Call(ast.Name("getattr"), [_, argument, *_]):
            return _name(argument)
        case ast.Call(ast.Attribute(ast.Constant(), "join"), [argument, *_]) | ast.Call(ast.Name(), [argument, *_]):
            return _name(argument)
        case ast.Call(ast.Attribute(_, "dumps" | "get" | "one_line"), [argument, *_]):
            return _name(argument)
        case ast.Call(ast.Attribute(owner, _)):
            return _name(owner)
        case ast.Call(function):
            return _name(function)
        case ast.Subscript(owner, ast.Constant(str(key))):
            return key
        case ast.Subscript(owner) | ast.Starred(owner):
            return _name(owner)
        case ast.BoolOp(_, [first, *_]) | ast.IfExp(_, first):
            return _name(first)
        case ast.BinOp(left):
            return _name(left)
        case ast.GeneratorExp(element) | ast.ListComp(element):
            return _name(element)
    return "value"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""


def _code(text: str) -> str:
    """Returns text in a code span; a table's cell ends at a bar, and a span at a backtick."""
    if "|" in text or "`" in text:
        return f"<code>{_cell(html.escape(text, quote=False))}</code>"
    return f"`{text}`"


def _cell(text: str) -> str:
    return text.replace("|", "&#124;")


if __name__ == "__main__":
    print(page(), end="")
