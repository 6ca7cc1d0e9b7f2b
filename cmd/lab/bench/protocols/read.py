"""Reads the routes of a released wheel out of its sources: no line of it is run.

Prints JSON: of every "METHOD /path" the fields that its body may have and the parameters of its query. A field has
the kinds of JSON that it takes (empty: any), and whether it is required. "loose" says that the handler reads the
request by itself: then the fields are those that it names, and others may be read elsewhere.
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile

VERBS = {"get": ["GET"], "post": ["POST"], "put": ["PUT"], "delete": ["DELETE"], "api_route": None, "add_api_route": None}
KINDS = {
    "str": ["string"], "bytes": ["string"], "Base64Bytes": ["string"], "int": ["integer"], "bool": ["boolean"],
    "float": ["number", "integer"], "list": ["array"], "List": ["array"], "tuple": ["array"], "Tuple": ["array"],
    "Sequence": ["array"], "Iterable": ["array"], "set": ["array"], "dict": ["object"], "Dict": ["object"],
    "Mapping": ["object"], "None": ["null"],
}  # fmt: skip
WRAPPERS = ("Annotated", "Required", "NotRequired", "ClassVar")


#: Classes of objects that a release's annotations leave open.
NESTED = {"sampling_params": ("sglang.srt.sampling.sampling_params", "SamplingParams")}


def literal(node: ast.AST | None) -> object:
    """The value of a default that is written out; None where it is none or is computed."""
    try:
        value = ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError):
        return None
    return value if isinstance(value, (bool, int, float, str)) else None


class Package:
    """The modules of a wheel, by name."""

    def __init__(self, wheel: str) -> None:
        self._archive = zipfile.ZipFile(wheel)
        self._paths = {
            path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
            for path in self._archive.namelist() if path.endswith(".py")
        }  # fmt: skip
        self._names: dict[str, dict[str, tuple[str, ast.AST | str]]] = {}
        self._trees: dict[str, ast.Module | None] = {}

    def within(self, prefix: str) -> list[str]:
        """The modules whose names begin with a prefix."""
        return [name for name in self._paths if name.startswith(prefix)]

    def tree(self, module: str) -> ast.Module | None:
        """A module's syntax, None where it is not in the wheel or is no Python that this one knows."""
        if module not in self._trees:
            self._trees[module] = None
            if module in self._paths:
                try:
                    self._trees[module] = ast.parse(self._archive.read(self._paths[module]))
                except SyntaxError:
                    pass
        return self._trees[module]

    def names(self, module: str) -> dict[str, tuple[str, ast.AST | str]]:
        """What the names of a module stand for."""
        if module not in self._names:
            self._names[module] = {}
            tree = self.tree(module)
            if tree is not None:
                self._index(module, tree, self._paths[module].endswith("/__init__.py"))
        return self._names[module]

    def _index(self, module: str, tree: ast.Module, package: bool) -> None:
        """Notes what a module's names stand for: a definition, an alias, or another module's name."""
        names = self._names[module]
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names.setdefault(node.name, (module, node))
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                names.setdefault(node.targets[0].id, (module, node.value))
            elif isinstance(node, ast.AnnAssign):
                target = node.target
                if isinstance(target, ast.Name) and node.value is not None:
                    names.setdefault(target.id, (module, node.value))
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    parts = module.split(".")
                    kept = parts[: len(parts) - node.level + package]
                    base = ".".join([*kept, *([base] if base else [])])
                for alias in node.names:
                    names.setdefault(alias.asname or alias.name, (base, alias.name))

    def find(self, module: str, name: str) -> tuple[str, ast.AST] | None:
        """What a name of a module stands for, through imports."""
        for _ in range(8):
            found = self.names(module).get(name)
            if found is None:
                return None
            if not isinstance(found[1], str):
                return found  # type: ignore[return-value]
            module, name = found
        return None

    def kinds(self, module: str, node: ast.AST | None, depth: int = 0) -> list[str]:
        """The kinds of JSON of an annotation; empty for any."""
        if node is None or depth > 6:
            return []
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                try:
                    return self.kinds(module, ast.parse(node.value, mode="eval").body, depth + 1)
                except SyntaxError:
                    return []
            return ["null"] if node.value is None else []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._union(module, [node.left, node.right], depth)
        if isinstance(node, ast.Subscript):
            head = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if head == "Optional":
                return self._union(module, [*parts, ast.Constant(None)], depth)
            if head == "Union":
                return self._union(module, parts, depth)
            if head == "Literal":
                of = {str: "string", bool: "boolean", int: "integer", type(None): "null"}
                return sorted({of[type(p.value)] for p in parts if isinstance(p, ast.Constant) and type(p.value) in of})
            if head in WRAPPERS:
                return self.kinds(module, parts[0], depth + 1)
            return KINDS.get(head, [])
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        if name in KINDS:
            return KINDS[name]
        found = self.find(module, name) if name else None
        if found is None:
            return []
        where, what = found
        if isinstance(what, ast.ClassDef):
            bases = {getattr(b, "id", getattr(b, "attr", "")) for b in what.bases}
            return ["string"] if "Enum" in bases or "StrEnum" in bases else ["object"]
        return self.kinds(where, what, depth + 1)

    def _union(self, module: str, parts: list[ast.expr], depth: int) -> list[str]:
        found: set[str] = set()
        for part in parts:
            kinds = self.kinds(module, part, depth + 1)
            if not kinds:
                return []
            found.update(kinds)
        return sorted(found)

    def fields(self, module: str, cls: ast.ClassDef, depth: int = 0) -> dict[str, dict[str, object]]:
        """The fields of a class with those that it inherits."""
        found: dict[str, dict[str, object]] = {}
        for base in cls.bases if depth < 8 else []:
            name = getattr(base, "id", getattr(base, "attr", ""))
            at = self.find(module, name)
            if at is not None and isinstance(at[1], ast.ClassDef) and at[1] is not cls:
                found.update(self.fields(at[0], at[1], depth + 1))
        for node in cls.body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            if node.target.id.startswith("_") or "ClassVar" in ast.unparse(node.annotation):
                continue
            name, required, default = node.target.id, node.value is None, node.value
            if isinstance(node.value, ast.Call) and ast.unparse(node.value.func).split(".")[-1].lower() == "field":
                given = {k.arg: k.value for k in node.value.keywords}
                first = node.value.args[0] if node.value.args else None
                ellipsis = isinstance(first, ast.Constant) and first.value is Ellipsis
                required = ellipsis or (first is None and not {"default", "default_factory"} & set(given))
                default = given.get("default", first)
                choices = given.get("validation_alias")
                if isinstance(choices, ast.Call) and choices.args:  # any one of several names
                    one = {"kinds": self.kinds(module, node.annotation), "required": False, "default": None}
                    found.update({c.value: {**one, **nested(self, module, node, depth)} for c in choices.args if isinstance(c, ast.Constant)})
                    continue
                alias = given.get("alias")
                if isinstance(alias, ast.Constant):
                    name = alias.value
            if any(getattr(b, "id", "") == "TypedDict" for b in cls.bases) and any(k.arg == "total" for k in cls.keywords):
                required = ast.unparse(node.annotation).startswith("Required[")
            found[name] = {"kinds": self.kinds(module, node.annotation), "required": required, "default": literal(default)}
            found[name].update(nested(self, module, node, depth))
        return found


def nested(package: Package, module: str, node: ast.AnnAssign, depth: int) -> dict[str, object]:
    """The fields of an object in a field. Classes that an annotation does not name are in NESTED."""
    name = node.target.id if isinstance(node.target, ast.Name) else ""
    if name in NESTED and (named := package.find(*NESTED[name])) is not None and isinstance(named[1], ast.ClassDef):
        return {"fields": package.fields(named[0], named[1], depth + 1)}
    texts = [ast.unparse(node.annotation)]
    for part in ast.walk(node.annotation):
        alias = package.find(module, part.id) if isinstance(part, ast.Name) else None
        if alias is not None and not isinstance(alias[1], ast.ClassDef):
            texts.append(ast.unparse(alias[1]))
    if any(word in text for text in texts for word in ("ict[", "Mapping[")):
        return {}  # any names
    at = models(package, module, node.annotation) if depth < 3 else []
    fields = merged([package.fields(where, cls, depth + 1) for where, cls in at])
    return {"fields": fields} if fields else {}


def routes(package: Package, within: str) -> dict[str, dict[str, object]]:
    """All routes of the modules whose names begin with a prefix."""
    found: dict[str, dict[str, object]] = {}
    for module in package.within(within):
        tree = package.tree(module)
        if tree is None:
            continue
        functions = {n.name: n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
        for function in functions.values():
            for call in function.decorator_list:
                note(package, found, module, call, function)
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "add_api_route" and len(call.args) > 1:
                note(package, found, module, call, functions.get(getattr(call.args[1], "id", "")))
    return found


def note(package: Package, found: dict, module: str, call: ast.AST, function: ast.AST | None) -> None:
    """Adds the route of a decorator, if it is one."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in VERBS:
        return
    path = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "path"), None)
    if not isinstance(path, ast.Constant) or not isinstance(path.value, str) or not path.value.startswith("/"):
        return
    methods = VERBS[call.func.attr]
    if methods is None:
        given = next((k.value for k in call.keywords if k.arg == "methods"), None)
        methods = [e.value for e in given.elts] if isinstance(given, ast.List) else ["GET"]
    content = handled(package, module, function) if function is not None else {"loose": True, "fields": {}, "query": {}}
    for method in methods:
        found.setdefault(f"{method} {path.value}", content)


def handled(package: Package, module: str, function: ast.FunctionDef) -> dict[str, object]:
    """What a handler takes."""
    fields: dict[str, object] = {}
    query: dict[str, object] = {}
    body, raw = False, ""
    given = function.args.args + function.args.kwonlyargs
    defaults = [None] * (len(function.args.args) - len(function.args.defaults)) + list(function.args.defaults)
    for argument, default in zip(given, [*defaults, *function.args.kw_defaults]):
        said = ast.unparse(argument.annotation) if argument.annotation else ""
        if said.split(".")[-1] in ("Request", "Response", "WebSocket", "BackgroundTasks"):
            raw = argument.arg if said.endswith("Request") else raw
            continue
        field = {"kinds": package.kinds(module, argument.annotation), "required": default is None}
        more = said + (ast.unparse(default) if default is not None else "")
        if "Depends" in more or "Header" in more:
            continue
        if "embed=True" in more:
            fields[argument.arg], body = field, True
            continue
        classes = models(package, module, argument.annotation)
        if classes:
            fields.update(merged([package.fields(*cls) for cls in classes]))
            body = True
        elif "Query" in more or not ("Body" in more or field["kinds"] in ([], ["object"])):
            field["required"] = field["required"] and "Query" not in ast.unparse(default) if default else field["required"]
            query[argument.arg] = field
        else:
            return {"loose": True, "fields": fields, "query": query, "none": False}
    loose = False
    if raw and not body:
        text = ast.unparse(function)
        loose = f"{raw}.json()" in text or f"{raw}.body()" in text
        for node in (node for part in function.body for node in ast.walk(part)):
            name = None
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get" and node.args:
                name, holder = node.args[0], ast.unparse(node.func.value)
            elif isinstance(node, ast.Subscript):
                name, holder = node.slice, ast.unparse(node.value)
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                at = query if "query_params" in holder else fields
                at.setdefault(name.value, {"kinds": [], "required": False})
    return {"loose": loose, "fields": fields, "query": query, "none": not body and not loose}


def merged(choices: list[dict[str, dict[str, object]]]) -> dict[str, dict[str, object]]:
    """The fields of any of several classes; required are those that all of them require."""
    found: dict[str, dict[str, object]] = {}
    for name in sorted({name for fields in choices for name in fields}):
        have = [fields[name] for fields in choices if name in fields]
        kinds = [] if any(not f["kinds"] for f in have) else sorted({k for f in have for k in f["kinds"]})
        found[name] = {
            "kinds": kinds, "required": len(have) == len(choices) and all(f["required"] for f in have),
            "default": have[0].get("default"),
        }  # fmt: skip
        if all("fields" in f for f in have):
            found[name]["fields"] = merged([f["fields"] for f in have])
    return found


def models(package: Package, module: str, annotation: ast.AST | None, depth: int = 0) -> list[tuple[str, ast.ClassDef]]:
    """The classes of a body, through Annotated, Optional and unions."""
    if annotation is None or depth > 6:
        return []
    found = []
    for node in ast.walk(annotation):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        at = package.find(module, name) if name and name not in WRAPPERS else None
        if at is None:
            continue
        if isinstance(at[1], ast.ClassDef):
            bases = {getattr(b, "id", getattr(b, "attr", "")) for b in at[1].bases}
            if not {"Enum", "StrEnum"} & bases:
                found.append(at)
        elif isinstance(at[1], (ast.Subscript, ast.BinOp, ast.Name)):
            found += models(package, at[0], at[1], depth + 1)
    return found


if __name__ == "__main__":
    json.dump(routes(Package(sys.argv[1]), sys.argv[2]), sys.stdout, indent=1, sort_keys=True)
