"""Parser of the text form of the IR, as written by `ir/printer.py`.

Result types are inferred from the ops; the printed ones must agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from tilewright.base.diagnostics import IRError, Loc
from tilewright.base.lazy_import import lazy_import
from tilewright.ir.core import Field, Function, Module, Op, Region, Value
from tilewright.ir.define import REGISTRY
from tilewright.ir.types import BY_SHORT, Pointer, Shared, TensorMemory, Tile, Type, text_of

if TYPE_CHECKING:
    from tilewright.layout import text
    from tilewright.layout.linear import LinearLayout
else:
    text = lazy_import("tilewright.layout.text")


Placed = tuple[Type, "LinearLayout | None"]  # the type and the layout of a value

BUFFERS = {"shared": Shared, "tensor": TensorMemory}
"""The types of memory, by name."""

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
    |(?P<arrow>->)
    |(?P<value>%\w+)
    |(?P<func>@[\w.$]+)
    |(?P<layout>!\d+)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<float>[+-]?(?:inf\b|nan\b|\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+))
    |(?P<tile>\d+x[\w]+)
    |(?P<int>-?\d+)
    |(?P<word>[A-Za-z_][\w.]*)
    |(?P<punct>[(){}\[\],:=<>])""",
    re.VERBOSE,
)


class _Tokens:
    """The tokens of a text, with one token of look-ahead."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.items: list[tuple[str, str, int]] = []
        position, line = 0, 1
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise IRError(
                    "syntax",
                    f"unexpected text {text[position : position + 20]!r}",
                    Loc(file, line, 1),
                )
            kind = match.lastgroup or ""
            if kind != "space":
                self.items.append((kind, match.group(), line))
            line += match.group().count("\n")
            position = match.end()
        self.items.append(("end", "", line))
        self.at = 0

    @property
    def kind(self) -> str:
        return self.items[self.at][0]

    @property
    def text(self) -> str:
        return self.items[self.at][1]

    @property
    def loc(self) -> Loc:
        return Loc(self.file, self.items[self.at][2], 1)

    def next(self) -> str:
        text = self.text
        self.at += 1
        return text

    def accept(self, text: str) -> bool:
        if self.text == text and self.kind != "string":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected {text!r}, found {self.text!r}")

    def expect_kind(self, kind: str) -> str:
        if self.kind != kind:
            self.fail(f"expected a {kind}, found {self.text!r}")
        return self.next()

    def fail(self, message: str, code: str = "syntax", loc: Loc | None = None) -> NoReturn:
        raise IRError(code, message, loc or self.loc)


class _Parser:
    """A recursive descent parser.

    Args:
        open_names: a function to which undefined names are added as arguments, so that the examples
            in docstrings of ops need no definitions of their operands; None makes them errors.
    """

    def __init__(self, text: str, file: str, open_names: Function | None = None) -> None:
        self.tokens = _Tokens(text, file)
        self.values: dict[str, Value] = {}
        self.layouts: dict[str, LinearLayout] = {}
        self.open_names = open_names
        self.op_loc: Loc | None = None  # the start of the current op, for errors

    # -- types and attributes -------------------------------------------------------------------

    def type(self) -> Type:
        t = self.tokens
        if t.kind == "tile":
            text = t.next()
            match = re.fullmatch(r"((?:\d+x)+)([A-Za-z_]\w*)", text)
            if match is None:
                t.fail(f"{text!r} is not a type")
            dims = tuple(int(d) for d in match[1].split("x")[:-1])
            return Tile(dims, self.scalar(match[2]))
        if t.text in BUFFERS:
            return self.buffer(BUFFERS[t.text])
        return self.scalar(t.expect_kind("word"))

    def buffer(self, kind: type[Shared | TensorMemory]) -> Type:
        t = self.tokens
        t.next()
        t.expect("<")
        tile = self.type()
        t.expect(">")
        if not isinstance(tile, Tile) or isinstance(tile.element, Pointer):
            t.fail("a buffer holds a tile of numbers")
        return kind(tile.shape, tile.element)

    def scalar(self, word: str) -> Any:
        t = self.tokens
        if word == "ptr":
            t.expect("<")
            const = t.accept("const")
            element: Any = self.type()
            t.expect(">")
            return Pointer(element, const)
        result = BY_SHORT.get(word)
        if result is None:
            t.fail(f"there is no type {word!r}")
        return result

    def types(self) -> list[Type]:
        if not self.tokens.accept("("):
            return [self.type()]
        return self._list(self.type, ")")

    def placed(self) -> Placed:
        """The type of a value and its layout, if any."""
        type = self.type()
        if self.tokens.kind != "layout":
            return type, None
        name = self.tokens.next()
        if name not in self.layouts:
            self.tokens.fail(f"there is no layout {name}", "undefined")
        return type, self.layouts[name]

    def places(self) -> list[Placed]:
        if not self.tokens.accept("("):
            return [self.placed()]
        return self._list(self.placed, ")")

    def layout(self) -> None:
        """A definition ``layout !0 = "…"``."""
        t = self.tokens
        name = t.expect_kind("layout")
        t.expect("=")
        loc = t.loc
        try:
            self.layouts[name] = text.parse(_unquote(t.expect_kind("string")))
        except ValueError as error:
            t.fail(str(error), "layout", loc)

    def _list(self, item: Callable[[], Any], end: str) -> list[Any]:
        result: list[Any] = []
        while not self.tokens.accept(end):
            result.append(item())
            if not self.tokens.accept(","):
                self.tokens.expect(end)
                break
        return result

    def attribute(self) -> Any:
        t = self.tokens
        if t.kind == "int":
            return int(t.next())
        if t.kind == "float":
            return float(t.next())
        if t.kind == "string":
            return _unquote(t.next())
        if t.accept("("):
            return tuple(self._list(self.attribute, ")"))
        if t.text in ("True", "False", "None"):
            return {"True": True, "False": False, "None": None}[t.next()]
        return self.type()

    def attr_dict(self) -> dict[str, Any]:
        def pair() -> tuple[str, Any]:
            name = self.tokens.expect_kind("word")
            self.tokens.expect("=")
            return name, self.attribute()

        return dict(self._list(pair, "}")) if self.tokens.accept("{") else {}

    def location(self) -> Loc | None:
        t = self.tokens
        if not t.accept("loc"):
            return None
        t.expect("(")
        file = _unquote(t.expect_kind("string"))
        t.expect(":")
        line = int(t.expect_kind("int"))
        t.expect(":")
        column = int(t.expect_kind("int"))
        t.expect("in")
        function = t.expect_kind("word")
        caller = self.location() if t.accept("from") else None
        t.expect(")")
        return Loc(file, line, column, "" if function == "_" else function, caller)

    # -- functions, regions, ops ----------------------------------------------------------------

    def module(self) -> Module:
        module = Module()
        while self.tokens.kind != "end":
            if self.tokens.accept("layout"):
                self.layout()
            else:
                module.add(self.function())
        return module

    def function(self) -> Function:
        t = self.tokens
        t.expect("func")
        name = t.expect_kind("func")[1:]
        self.values = {}
        t.expect("(")
        args = self._list(self._function_arg, ")")
        results = self.types() if t.accept("->") else []
        attrs = self.attr_dict() if t.accept("attributes") else {}
        fn = Function(name, [a[1] for a in args], results, [a[2] for a in args])
        fn.attrs = attrs
        for (arg_name, _, _), value in zip(args, fn.args, strict=True):
            self.define(arg_name, value)
        t.expect("{")
        fn.loc = self.location()
        self.ops(fn.body, "}")
        return fn

    def _function_arg(self) -> tuple[str, Type, dict[str, Any]]:
        name = self.tokens.expect_kind("value")
        self.tokens.expect(":")
        return name, self.type(), self.attr_dict()

    def _region_arg(self) -> tuple[str, Placed]:
        name = self.tokens.expect_kind("value")
        self.tokens.expect(":")
        return name, self.placed()

    def ops(self, region: Region, end: str) -> None:
        while not self.tokens.accept(end):
            region.append(self.op())

    def op(self) -> Op:
        t = self.tokens
        names: list[str] = []
        if t.kind == "value":
            names.append(t.next())
            while t.accept(","):
                names.append(t.expect_kind("value"))
            t.expect("=")
        start = t.loc
        cls = REGISTRY.get(name := t.expect_kind("word"))
        if cls is None:
            t.fail(f"there is no op {name!r}", "unknown-op")
        raw = self._fields(cls.fields)
        t.expect(":")
        operand_types = self.places()
        t.expect("->")
        result_types = self.places()
        loc = self.location()
        self.op_loc = start
        fields = self._resolve(cls.fields, raw, operand_types)
        self._regions(cls.fields, fields)
        op = cls(**fields, loc=loc or start)
        self.op_loc = start
        self._check_results(op, names, result_types)
        self.op_loc = None
        return op

    def _fields(self, fields: tuple[Field, ...]) -> dict[str, Any]:
        """Operand names and attribute values by field, unresolved."""
        t = self.tokens
        found: dict[str, Any] = {}
        pending = [f for f in fields if f.kind != "region"]
        while pending and t.text != ":":
            f = pending.pop(0)
            if f.kind == "attr":
                if t.text != f.name:
                    continue  # omitted: use the default
                t.next()
                t.expect("=")
                found[f.name] = self.attribute()
            elif f.kind == "variadic":
                t.expect("[")
                found[f.name] = self._list(lambda: t.expect_kind("value"), "]")
            else:
                found[f.name] = None if t.accept("_") else t.expect_kind("value")
            t.accept(",")
        return found

    def _resolve(
        self, fields: tuple[Field, ...], raw: dict[str, Any], types: list[Placed]
    ) -> dict[str, Any]:
        count = sum(
            len(raw[f.name]) if f.kind == "variadic" else raw[f.name] is not None
            for f in fields
            if f.kind in ("operand", "optional", "variadic") and f.name in raw
        )
        if count != len(types):
            self.tokens.fail(f"{count} operands, but {len(types)} types", loc=self.op_loc)
        remaining = iter(types)
        result: dict[str, Any] = {}
        for f in fields:
            if f.name not in raw:
                continue
            value = raw[f.name]
            if f.kind == "variadic":
                value = [self.use(n, *next(remaining)) for n in value]
            elif f.kind in ("operand", "optional") and value is not None:
                value = self.use(value, *next(remaining))
            result[f.name] = value
        return result

    def _regions(self, fields: tuple[Field, ...], found: dict[str, Any]) -> None:
        t = self.tokens
        names = [f.name for f in fields if f.kind == "region"]
        if not names:
            return
        t.expect("{")
        for i, name in enumerate(names):
            region = Region()
            if t.accept("("):
                for arg_name, (type, layout) in self._list(self._region_arg, ")"):
                    arg = region.add_arg(type)
                    arg.layout = layout
                    self.define(arg_name, arg)
            while t.text != "}":
                region.append(self.op())
            t.expect("}")
            if i + 1 < len(names):
                t.expect("{")
            found[name] = region

    def _check_results(self, op: Op, names: list[str], places: list[Placed]) -> None:
        actual = [r.type for r in op.results]
        types = [type for type, _ in places]
        if actual != types:
            self.tokens.fail(
                f"{op.name} returns {[text_of(t) for t in actual]}, but the printed types are "
                f"{[text_of(t) for t in types]}",
                "result-type",
                self.op_loc,
            )
        if names and len(names) != len(actual):
            self.tokens.fail(f"{op.name} has {len(actual)} results, but {len(names)} names")
        for result, (_, layout) in zip(op.results, places, strict=True):
            result.layout = layout
        for name, value in zip(names, op.results, strict=False):
            self.define(name, value)

    def define(self, name: str, value: Value) -> None:
        if name in self.values:
            self.tokens.fail(f"{name} is defined twice", "redefinition", self.op_loc)
        self.values[name] = value

    def use(self, name: str, type: Type, layout: LinearLayout | None) -> Value:
        value = self.values.get(name)
        if value is None and self.open_names is not None:
            value = self.open_names.body.add_arg(type)
            value.layout = layout
            self.open_names.arg_attrs.append({})
            self.values[name] = value
        if value is None:
            self.tokens.fail(f"{name} is not defined", "undefined", self.op_loc)
        if value.type != type:
            self.tokens.fail(
                f"{name} is {text_of(value.type)}, not {text_of(type)}", "operand-type", self.op_loc
            )
        if value.layout != layout:
            self.tokens.fail(
                f"{name} was defined with a different layout", "operand-layout", self.op_loc
            )
        return value


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text[1:-1])


def parse_module(text: str, file: str = "<ir>") -> Module:
    """Parse a module. Raises `IRError`, with the line, if the text is invalid.

    >>> parse_module("func @f(%0: i32) {\\n control.return [] : () -> ()\\n}").entry.name
    'f'
    """
    return _Parser(text, file).module()


def parse_example(text: str) -> Function:
    """Parse a list of ops into a function whose arguments are the undefined operands."""
    fn = Function("example", [])
    parser = _Parser(text, "<example>", open_names=fn)
    while parser.tokens.kind != "end":
        if parser.tokens.accept("layout"):
            parser.layout()
        else:
            fn.body.append(parser.op())
    return fn
