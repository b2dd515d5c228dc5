"""Random functions of `if`, `for`, `while`, `return` and tuples behave as in Python."""

import random

import numpy as np

from tests.frontend.kernels import function_from, kernel_from, launch

NAMES = ["a", "b", "c", "d"]


class Writer:
    """Writes the body of a function over small integers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.loops = 0

    def expression(self, depth: int = 0) -> str:
        kind = self.random.random()
        if depth > 2 or kind < 0.3:
            return self.random.choice([*NAMES, str(self.random.randint(0, 20))])
        if kind < 0.4:
            return f"({self.expression(2)} if {self.condition()} else {self.expression(2)})"
        sign = self.random.choice(["+", "-", "*", "&", "|", "^"])
        # The mask keeps products small, and makes all values what they are in 32 bits too.
        return f"(({self.expression(depth + 1)} {sign} {self.expression(depth + 1)}) & 63)"

    def condition(self) -> str:
        sign = self.random.choice(["<", "<=", ">", "==", "!="])
        first = f"{self.random.choice(NAMES)} {sign} {self.expression(2)}"
        if self.random.random() < 0.3:
            return f"({first}) & ({self.random.choice(NAMES)} < {self.random.randint(0, 63)})"
        return first

    def statement(self, indent: str, depth: int) -> None:
        kind = self.random.random()
        if kind < 0.4 or depth > 3:
            self.lines.append(f"{indent}{self.random.choice(NAMES)} = {self.expression()}")
        elif kind < 0.5:
            first, second = self.random.sample(NAMES, 2)
            self.lines.append(f"{indent}{first}, {second} = {second}, {self.expression()}")
        elif kind < 0.75:
            self.branch(indent, depth)
        elif kind < 0.85 and not self.loops:
            self.lines.append(f"{indent}return {self.expression()}")
        else:
            self.loop(indent, depth)

    def branch(self, indent: str, depth: int) -> None:
        self.lines.append(f"{indent}if {self.condition()}:")
        self.block(indent + "    ", depth + 1)
        if self.random.random() < 0.3:
            self.lines.append(f"{indent}elif {self.condition()}:")
            self.block(indent + "    ", depth + 1)
        if self.random.random() < 0.6:
            self.lines.append(f"{indent}else:")
            self.block(indent + "    ", depth + 1)

    def loop(self, indent: str, depth: int) -> None:
        bounds = ["0, b & 3", "1, 4", "a & 7, 8, 3", "5, 0, -2"]
        index = f"i{len(self.lines)}"
        self.loops += 1
        if self.random.random() < 0.3:
            self.lines.append(f"{indent}{index} = {self.random.choice(['b & 3', '3', 'a - 60'])}")
            self.lines.append(f"{indent}while {index} > 0:")
            self.block(indent + "    ", depth + 1)
            self.lines.append(f"{indent}    {index} -= 1")
            self.loops -= 1
            return
        self.lines.append(f"{indent}for {index} in range({self.random.choice(bounds)}):")
        self.lines.append(f"{indent}    c = (c + {index}) & 63")
        self.block(indent + "    ", depth + 1)
        self.loops -= 1

    def block(self, indent: str, depth: int) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.statement(indent, depth)

    def function(self) -> str:
        self.block("    ", 0)
        self.block("    ", 0)
        body = "\n".join(self.lines)
        return f"def f(a, b):\n    c = a\n    d = b & 7\n{body}\n    return (a + b + c + d) & 63\n"


def test_random_function_agrees_with_python(fuzz_seed: int) -> None:
    text = Writer(fuzz_seed).function()
    print(text)
    python = function_from(text)
    kernel = kernel_from(f"@jit\n{text}\ndef kernel(out, a, b):\n    tl.store(out, f(a, b))\n")
    for a, b in ((0, 0), (1, 5), (17, 40), (63, 2), (30, 63)):
        out = np.full(1, -1, np.int32)
        launch(kernel, out, a, b)
        assert out[0] == python(a, b), (a, b)
