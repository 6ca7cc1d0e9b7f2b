"""Objects of a JSON document with attributes: the base of all result types."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@functools.cache
def _declared(of: type) -> Mapping[str, str]:
    """The annotations of a class and of those that it extends."""
    found: dict[str, str] = {}
    for base in reversed(of.__mro__):
        found.update({name: kind for name, kind in inspect.get_annotations(base).items() if not name.startswith("_")})
    return found


class View:
    """One JSON object. Its keys are attributes; objects within are views, too.

    A key that the document leaves out is None, or empty where it holds a list or a map. A key that is a word of
    Python, or the name of a method, has an underscore behind it (`from_`).
    """

    #: Keys that hold objects, with the type of these.
    _inner: ClassVar[Mapping[str, type[View]]] = {}
    #: Those of them that map names to objects.
    _maps: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def __getattr__(self, name: str) -> Any:  # asked once a name: the value is kept
        if name.startswith("__") or name == "_document":
            raise AttributeError(name)
        key = name.removesuffix("_")
        if key not in self._document and name not in self._names():
            near = difflib.get_close_matches(name, list(self), 1)
            hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(self)}"
            raise AttributeError(f"{type(self).__name__} has no {name}{hint}")
        value = self._viewed(key, self._document.get(key))
        self.__dict__[name] = value
        return value

    def _viewed(self, key: str, value: Any) -> Any:
        if value is None:
            kind = self._names().get(key, "")
            if kind.endswith("| None"):
                return None
            return [] if kind.startswith("list[") else {} if kind.startswith("dict[") else None
        of = self._inner.get(key)
        if of is None:
            return value
        if isinstance(value, list):
            return [of(item) for item in value]
        if key in self._maps:
            return {name: of(item) for name, item in value.items()}
        return of(value)

    @classmethod
    def _names(cls) -> Mapping[str, str]:
        """The keys that the schema knows, with their types as text."""
        return _declared(cls)  # type: ignore[arg-type]  # a class has a hash, whatever its objects have

    def __iter__(self) -> Iterator[str]:
        """The keys, those first that the schema knows."""
        known = list(self._names())
        yield from known
        yield from (key for key in self._document if key not in known and f"{key}_" not in known)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and self._document == other._document

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = []
        for name in self:
            value = getattr(self, name)
            if isinstance(value, (list, dict)) and (len(value) > 3 or any(isinstance(item, View) for item in value)):
                value = f"<{len(value)}>"
            elif isinstance(value, View):
                value = f"{type(value).__name__}(…)"
            elif isinstance(value, float):
                value = f"{value:.6g}"
            shown.append(f"{name}={value}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def __getstate__(self) -> Mapping[str, Any]:
        return self._document

    def __setstate__(self, document: Mapping[str, Any]) -> None:
        self.__dict__["_document"] = document

    def to_dict(self) -> dict[str, Any]:
        """The JSON document itself, not a copy."""
        return dict(self._document)


class Result(View):
    """A whole document of the program: a view with a frame, a plot and a table for notebooks."""

    #: The list that `frame` takes without a name.
    _rows: ClassVar[str] = ""

    def frame(self, rows: str = "") -> Any:
        """A list of this result as a pandas or polars DataFrame, whichever is installed.

        `rows` names another list, such as `headway.plan(…).frame("finalists")`. Objects within rows become columns
        with dots (`predicted.staleness_mean`). Without pandas and polars it raises `MissingLibrary`.
        """
        from . import frames

        return frames.frame(frames.rows(self, rows or self._rows))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the result with matplotlib, on the given axes or on new ones. `MissingLibrary` without it."""
        from . import plots

        return plots.plot(self, ax)

    def _repr_html_(self) -> str:
        from . import frames

        return frames.html(self)
