"""`NamedTuple` as `typing` has it, for a tenth of its price: a start makes sixty such classes.

`typing.NamedTuple` compiles every annotation, and a `__new__` for each class: a quarter of a millisecond. Here the
annotations stay the text that they are, and a `__new__` is compiled once for each number of fields and takes over their
names. A class made so is a tuple with the same signature, fields, defaults, `_replace`, `_asdict`, `_make`, `repr` and
pickle; type checkers are told `typing.NamedTuple` by the stub beside this. A class of such a class is not foreseen.
"""

from __future__ import annotations

from _collections import _tuplegetter  # what collections.namedtuple reads a field with
from collections.abc import Iterable
from functools import cache
from types import CodeType, FunctionType
from typing import Any

_GLOBALS = {"_make_tuple": tuple.__new__, "__builtins__": {}}


@cache
def _new(count: int) -> CodeType:
    """The code of a `__new__` for so many fields."""
    names = "".join(f"_{place}, " for place in range(count))
    code: CodeType = eval(f"lambda _cls, {names}: _make_tuple(_cls, ({names}))").__code__  # noqa: S307 - of our own text
    return code


class _WithFields(type):
    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _WithFields:
        fields = tuple(namespace.get("__annotations__", ()))
        defaults = {field: namespace[field] for field in fields if field in namespace}
        if fields[len(fields) - len(defaults) :] != tuple(defaults):
            raise TypeError(f"{name}: a field without a default follows one that has it")
        code = _new(len(fields)).replace(
            co_varnames=("_cls", *fields), co_name="__new__", co_qualname=f"{namespace['__qualname__']}.__new__"
        )
        namespace |= {field: _tuplegetter(place, None) for place, field in enumerate(fields)}
        namespace |= {
            "__new__": FunctionType(code, _GLOBALS, "__new__", tuple(defaults.values())),
            "__slots__": (),
            "__match_args__": fields,
            "_fields": fields,
            "_field_defaults": defaults,
        }
        return super().__new__(mcs, name, bases, namespace)


class NamedTuple(tuple, metaclass=_WithFields):  # noqa: SLOT001 - the metaclass gives it empty ones
    @classmethod
    def _make(cls, values: Iterable[Any]) -> NamedTuple:
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, not {len(made)}")
        return made

    def _replace(self, **named: Any) -> NamedTuple:
        made = tuple.__new__(type(self), map(named.pop, self._fields, self))
        if named:
            raise ValueError(f"{type(self).__name__} has no field {', '.join(named)}")
        return made

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        shown = ", ".join(f"{field}={value!r}" for field, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({shown})"
