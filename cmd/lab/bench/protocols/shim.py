"""Reads what examples/hf_shim takes out of its routes.py: prints of every "METHOD /path" fields and defaults as JSON."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator

VERBS = {"post": ["POST"], "get": ["GET"], "both": ["GET", "POST"]}


def main(path: str) -> None:
    """Prints what the file at a path says."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    fields = {
        f.name: {"fields": said(tree, f), "defaults": defaults(tree, f)}
        for f in ast.walk(tree) if isinstance(f, ast.AsyncFunctionDef)
    }  # fmt: skip
    found = {}
    for key, value in entries(tree):
        text = key.value if isinstance(key, ast.Constant) else ""
        if isinstance(text, str) and text.startswith("/") and isinstance(value, ast.Tuple):
            for method in VERBS[value.elts[0].id]:
                found[f"{method} {text}"] = fields[value.elts[1].attr]
    json.dump(found, sys.stdout)


def entries(tree: ast.Module) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    """Keys and values of dictionaries; of a path behind a prefix that varies, the path."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield from zip(node.keys, node.values)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            key = node.targets[0].slice
            yield key.right if isinstance(key, ast.BinOp) else key, node.value


def said(tree: ast.Module, function: ast.AsyncFunctionDef) -> list[str]:
    """The fields that a handler names to refuse all others."""
    names: list[str] = []
    for node in (*tree.body, *ast.walk(function)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "refuse_unknown":
            names += texts(tree, function, node.args[1])
    return names


def defaults(tree: ast.Module, function: ast.AsyncFunctionDef) -> dict[str, object]:
    """What a handler takes for a field that is left out: the last of flag, integer, get and of a dictionary's entries."""
    found: dict[str, object] = {}
    constants = {n.targets[0].id: n.value for n in tree.body if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)}
    helpers = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f"{f.name}(given)" in ast.unparse(function)]
    for node in (n for part in (*helpers, function) for n in ast.walk(part)):
        pairs: list[tuple[ast.expr | None, ast.expr]] = []
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "flag":
            pairs = [(node.args[1], node.args[2])]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get" and len(node.args) == 2:  # noqa: PLR2004
            pairs = [(node.args[0], node.args[1])]
        elif isinstance(node, ast.Dict) and None in node.keys and "incoming.json()" in ast.unparse(node):
            pairs = list(zip(node.keys, node.values))
        for key, value in pairs:
            value = constants.get(getattr(value, "id", ""), value)
            if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                found[key.value] = value.value
    return found


def texts(tree: ast.Module, function: ast.AsyncFunctionDef, node: ast.expr) -> list[str]:
    """The texts of a tuple, through names and stars."""
    if isinstance(node, ast.Constant):
        return [node.value]
    if isinstance(node, ast.Tuple):
        return [text for part in node.elts for text in texts(tree, function, part)]
    if isinstance(node, ast.Starred):
        return texts(tree, function, node.value)
    for assigned in (*ast.walk(function), *tree.body):
        if isinstance(assigned, ast.Assign) and ast.unparse(assigned.targets[0]) == ast.unparse(node):
            return texts(tree, function, assigned.value)
    raise SystemExit(f"{function.name}: {ast.unparse(node)} is not read")


if __name__ == "__main__":
    main(sys.argv[1])
