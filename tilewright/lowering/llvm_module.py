"""An LLVM module under construction: functions, blocks, phis, globals and metadata.

Re-exported by `lowering.emit`; import it from there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.lowering.llvm_values import LType, Number, V, pointer, row, scalar_text


class Module:
    """An LLVM module under construction. `text()` requires that all blocks are closed.

    Attributes:
        constant_space: the address space of constants.
    """

    __slots__ = (
        "_attributes", "_declarations", "_functions", "_globals", "_header", "_metadata",
        "_metadata_ids", "_named", "_rows", "constant_space", "name",
    )  # fmt: skip

    def __init__(self, name: str, constant_space: int = 0) -> None:
        self.name = name
        self.constant_space = constant_space
        self._header = [f"; ModuleID = '{name}'"]
        self._attributes: dict[str, str] = {}
        self._declarations: dict[str, str] = {}
        self._functions: dict[str, Function] = {}
        self._globals: dict[str, str] = {}
        self._metadata: list[str] = []
        self._metadata_ids: dict[str, str] = {}
        self._named: dict[str, list[str]] = {}
        self._rows: dict[str, str] = {}

    def function(
        self,
        name: str,
        ret: LType,
        params: Sequence[tuple[LType, str]],
        attributes: str = "",
        linkage: str = "",
        names: Sequence[str] = (),
    ) -> Function:
        """Define a function; the result has its `params` as values and an open entry block.

        `params` pairs each type with its parameter attributes (``"noalias align 64"``), and `names`
        are their names (default: ``%p0``, ``%p1``, …).
        `attributes` is a list of function attributes; equal lists are shared. `linkage` is the text
        before the return type: linkage and calling convention (``"internal"``, ``"ptx_kernel"``).
        Raises ValueError if the name is taken.
        """
        if name in self._functions or name in self._globals:
            raise ValueError(f"@{name} is defined twice in module {self.name}")
        group = self.attribute_group(attributes)
        result = Function(self, name, ret, params, group, linkage, names)
        self._functions[name] = result
        return result

    def row(self, member: LType, count: int) -> LType:
        """A named struct of `count` members of one type."""
        result = row(member, count)
        self._rows[result.text] = f"{{ {', '.join([member.text] * count)} }}"
        return result

    def declare(self, name: str, ret: LType, args: Sequence[LType], attributes: str = "") -> None:
        """Declare an external function once. Raises ValueError if two declarations differ."""
        line = f"declare {ret.text} @{name}({', '.join(a.text for a in args)})"
        if attributes:
            line = f"{line} {self.attribute_group(attributes)}"
        known = self._declarations.setdefault(name, line)
        # A later use without attributes is consistent with a declaration that has some.
        if known != line and not (known.startswith(line + " #") and not attributes):
            raise ValueError(f"@{name} is declared as both\n  {known}\n  {line}")

    def attribute_group(self, attributes: str) -> str:
        """``"#n"`` for a list of function attributes; the empty string for none."""
        if not attributes:
            return ""
        return self._attributes.setdefault(attributes, f"#{len(self._attributes)}")

    def global_constant(
        self,
        hint: str,
        element: LType,
        numbers: Sequence[Number],
        align: int = 64,
        space: int | None = None,
    ) -> V:
        """A private constant array; the result is its address. Equal arrays are shared."""
        space = self.constant_space if space is None else space
        body = ", ".join(f"{element.text} {scalar_text(element, n)[0]}" for n in numbers)
        address_space = f"addrspace({space}) " if space else ""
        line = (
            f"private unnamed_addr {address_space}constant [{len(numbers)} x {element.text}] "
            f"[{body}], align {align}"
        )
        for name, known in self._globals.items():
            if known == line:
                return V(f"@{name}", pointer(space))
        name = f"{hint}.{len(self._globals)}"
        self._globals[name] = line
        return V(f"@{name}", pointer(space))

    def global_variable(
        self,
        name: str,
        type: LType,
        initializer: str = "zeroinitializer",
        align: int = 16,
        space: int = 0,
        linkage: str = "internal",
    ) -> V:
        """A mutable global, such as a GPU's shared memory (space 3, initializer ``poison``).

        With ``linkage="external"`` and an empty initializer it is a declaration.
        """
        if name in self._globals or name in self._functions:
            raise ValueError(f"@{name} is defined twice in module {self.name}")
        address_space = f"addrspace({space}) " if space else ""
        value = f"{type.text} {initializer}".rstrip()
        self._globals[name] = f"{linkage} {address_space}global {value}, align {align}"
        return V(f"@{name}", pointer(space))

    def metadata(self, text: str, distinct: bool = False) -> str:
        """The id (``"!4"``) of an unnamed node, written as in LLVM: ``'!{!"name", i32 1}'``.

        Equal nodes share an id unless `distinct`; in a distinct node ``!self`` is its own id.
        """
        if not distinct and text in self._metadata_ids:
            return self._metadata_ids[text]
        node = f"!{len(self._metadata)}"
        if distinct:
            self._metadata.append(f"{node} = distinct {text.replace('!self', node)}")
        else:
            self._metadata.append(f"{node} = {text}")
            self._metadata_ids[text] = node
        return node

    def node(self, id: str) -> str:
        """The text of the unnamed node with an id: ``"distinct !{!4}"``."""
        return self._metadata[int(id[1:])].partition(" = ")[2]

    def named_metadata(self, name: str, node: str) -> None:
        """Append a node id to the named metadata ``!name``."""
        self._named.setdefault(name, []).append(node)

    def defines(self, name: str) -> bool:
        """Whether a function of that name is defined here."""
        return name in self._functions

    def text(self) -> str:
        """The module as LLVM assembly. Raises ValueError when a block has no terminator."""
        parts = list(self._header)
        parts += [f"{name} = type {members}" for name, members in self._rows.items()]
        parts += [f"@{name} = {line}" for name, line in self._globals.items()]
        parts += [line for name, line in self._declarations.items() if name not in self._functions]
        parts += [function.text() for function in self._functions.values()]
        parts += [f"attributes {group} = {{ {a} }}" for a, group in self._attributes.items()]
        parts += [f"!{name} = !{{{', '.join(nodes)}}}" for name, nodes in self._named.items()]
        parts += self._metadata
        return "\n".join(parts) + "\n"


class Function:
    """A function of a module.

    Attributes:
        params: its parameters.
        param_attributes: their attributes in LLVM's syntax.
        entry, blocks: the first block, and all blocks in their order.
        allocas: the instructions that allocate memory in the entry block, by name.
        types: the type of each value that an instruction defines, by name.
        subprogram: the metadata id of its DISubprogram, or the empty string.
    """

    __slots__ = (
        "_head", "_serial", "allocas", "blocks", "entry", "module", "name", "param_attributes",
        "params", "ret", "subprogram", "types",
    )  # fmt: skip

    def __init__(
        self,
        module: Module,
        name: str,
        ret: LType,
        params: Sequence[tuple[LType, str]],
        attribute_group: str,
        linkage: str,
        names: Sequence[str] = (),
    ) -> None:
        self.module = module
        self.name = name
        self.ret = ret
        names = names or [f"%p{i}" for i in range(len(params))]
        self.params = [V(name, type) for name, (type, _) in zip(names, params, strict=True)]
        self.param_attributes = [attributes for _, attributes in params]
        written = ", ".join(
            " ".join(filter(None, (type.text, attributes, name)))
            for name, (type, attributes) in zip(names, params, strict=True)
        )
        before = f"{linkage} " if linkage else ""
        after = f" {attribute_group}" if attribute_group else ""
        self._head = f"define {before}{ret.text} @{name}({written}){after}"
        self.subprogram = ""
        self.allocas: dict[str, str] = {}
        self.types: dict[str, LType] = {}
        self._serial = 0
        self.blocks: list[Block] = []
        self.entry = Block(self, "entry")

    def add_attribute(self, attribute: str) -> None:
        """Add to the function's attributes: ``"alwaysinline"``."""
        self._head = f"{self._head} {attribute}"

    def next_serial(self) -> int:
        """A number that makes a value's or a block's name unique in this function."""
        self._serial += 1
        return self._serial

    def text(self) -> str:
        """The definition as LLVM assembly."""
        dbg = f" !dbg {self.subprogram}" if self.subprogram else ""
        parts = [f"{self._head}{dbg} {{"]
        for block in self.blocks:
            if not block.closed:
                raise ValueError(f"block {block.label} of @{self.name} has no terminator")
            parts.append(f"{block.label}:")
            if block is self.entry:
                parts += self.allocas.values()
            parts += [phi.line() for phi in block.phis]
            parts += block.lines
        parts.append("}")
        return "\n".join(parts)


class Block:
    """A basic block. It is added to the function when a builder first moves to it."""

    __slots__ = ("closed", "function", "label", "lines", "phis", "placed")

    def __init__(self, function: Function, hint: str) -> None:
        self.function = function
        self.label = f"{hint}{function.next_serial()}"
        self.lines: list[str] = []
        self.phis: list[Phi] = []
        self.closed = False
        self.placed = False

    def place(self) -> None:
        """Add the block at the end of the function, unless it was added already."""
        if not self.placed:
            self.placed = True
            self.function.blocks.append(self)


class Phi:
    """A phi node; add an incoming value for each predecessor of its block.

    Attributes:
        location: the end of the instruction, ``", !dbg !7"`` or the empty string.
    """

    __slots__ = ("_incoming", "location", "value")

    def __init__(self, value: V, location: str) -> None:
        self.value = value
        self._incoming: list[str] = []
        self.location = location

    def add(self, value: V, block: Block) -> None:
        """Add the incoming value for the predecessor `block`."""
        if value.type is not self.value.type:
            raise TypeError(f"phi of {self.value.type} cannot take {value!r}")
        self._incoming.append(f"[ {value.text}, %{block.label} ]")

    def line(self) -> str:
        """The instruction as text. Raises ValueError if there is no incoming value."""
        if not self._incoming:
            raise ValueError(f"phi {self.value.text} has no incoming value")
        text, type = self.value.text, self.value.type.text
        return f"  {text} = phi {type} {', '.join(self._incoming)}{self.location}"


class Loop:
    """The loop of `Builder.loop`: `index` and `carried` in its body, `results` after it."""

    __slots__ = ("_yielded", "carried", "index", "results")

    def __init__(self, index: V, carried: list[V]) -> None:
        self.index = index
        self.carried = carried
        self.results: list[V] = []
        self._yielded: list[V] | None = None

    def yield_(self, values: Sequence[V]) -> None:
        """Set the carried values of the next iteration; call once, at the end of the body."""
        if self._yielded is not None:
            raise ValueError("the loop body has yielded already")
        if [v.type for v in values] != [c.type for c in self.carried]:
            raise TypeError(f"the loop carries {self.carried}, the body yields {list(values)}")
        self._yielded = list(values)

    def yielded(self) -> list[V]:
        """The yielded values. Raises ValueError if the loop carries values and yielded none."""
        if self._yielded is None and self.carried:
            raise ValueError("the loop carries values but its body never yielded")
        return self._yielded or []
