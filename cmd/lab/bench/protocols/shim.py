"""Reads what examples/hf_shim takes out of its routes.py: prints of every "METHOD /path" the fields as JSON."""

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
    fields = {f.name: said(tree, f) for f in ast.walk(tree) if isinstance(f, ast.AsyncFunctionDef)}
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
