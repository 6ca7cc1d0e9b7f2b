"""Reads what a released client of Tinker's API sends and reads, out of its sources: no line of it is run.

Prints JSON: of every "METHOD /path" the fields of its body, in the form of read.py. A part of a path that varies is {}.
With a further argument "words" it prints instead every name and text of the modules with a prefix.
"""

from __future__ import annotations

import ast
import json
import sys

from read import Package, merged, models


def calls(package: Package, within: str) -> dict[str, dict[str, object]]:
    """The requests of the modules whose names begin with a prefix."""
    found: dict[str, dict[str, object]] = {}
    for module in package.within(within):
        tree = package.tree(module)
        for function in ast.walk(tree) if tree is not None else ():
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for call in ast.walk(function):
                path = target(call)
                if path:
                    verb = call.func.attr.lstrip("_").upper()  # type: ignore[attr-defined]
                    fields = body(package, module, function, call)
                    found.setdefault(f"{verb} {path}", {"loose": fields is None, "fields": fields or {}, "query": {}})
    return found


def target(call: ast.AST) -> str:
    """The path of a request, empty where a call is none."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not call.args:
        return ""
    if call.func.attr.lstrip("_") not in ("get", "post", "put", "delete"):
        return ""
    path = call.args[0]
    text = ""
    if isinstance(path, ast.Constant):
        text = path.value if isinstance(path.value, str) else ""
    elif isinstance(path, ast.JoinedStr):
        text = "".join(p.value if isinstance(p, ast.Constant) else "{}" for p in path.values)
    return text if text.startswith("/") else ""


def body(package: Package, module: str, function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call) -> dict[str, object] | None:
    """The fields of a request: those of the handed class, or the names of a dictionary; None where neither stands there."""
    given = next((k.value for k in call.keywords if k.arg == "body"), None)
    if isinstance(given, ast.Dict):
        return {k.value: {"kinds": [], "required": True} for k in given.keys if isinstance(k, ast.Constant)}
    for argument in function.args.args + function.args.kwonlyargs:
        if argument.arg == "request":
            return merged([package.fields(*cls) for cls in models(package, module, argument.annotation)])
    return {} if given is None else None


def words(package: Package, within: str) -> list[str]:
    """Every name and text that modules have."""
    found: set[str] = set()
    for module in (m for prefix in within.split(",") for m in package.within(prefix)):
        for node in ast.walk(package.tree(module) or ast.Module([], [])):
            for name in (getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "arg", None), getattr(node, "value", None)):
                if isinstance(name, str) and name.isidentifier():
                    found.add(name)
    return sorted(found)


if __name__ == "__main__":
    wheel, prefix, *rest = sys.argv[1:]
    json.dump(words(Package(wheel), prefix) if rest else calls(Package(wheel), prefix), sys.stdout, indent=1, sort_keys=True)
