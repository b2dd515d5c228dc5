"""Kernels with loops that carry a state, in fp64."""

from __future__ import annotations

import numpy as np

from tests.autodiff.harness import (
    Arrays,
    check_gradients,
    copied,
    forward_module,
    run_forward,
    vjp,
)

HEAD = """
def kernel(x_ptr, w_ptr, y_ptr, n):
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    w = tl.load(w_ptr + i)
"""
LOOPS = {
    "a recurrent network": """
h = w * w
for t in range(n):
    h = tl.sin(h * w + tl.load(x_ptr + t * 8 + i))
    tl.store(y_ptr + t * 8 + i, h * h)
tl.store(y_ptr + n * 8 + i, h)
""",
    "a decaying sum": """
h = w * w
for t in range(n):
    h = h * 0.5 + tl.load(x_ptr + t * 8 + i)
    tl.store(y_ptr + t * 8 + i, h)
""",
    "a gated sum, and a sum of its squares": """
h = w * w
total = w
for t in range(n):
    h = h * w + tl.load(x_ptr + t * 8 + i)
    total += h * h
    tl.store(y_ptr + t * 8 + i, h)
tl.store(y_ptr + n * 8 + i, total)
""",
    "places that each iteration computes again": """
h = w * w
for t in range(n):
    tl.store(y_ptr + t * 8 + i, h)
    h = h * tl.load(x_ptr + t * 8 + i)
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    h = tl.sin(h + w)
""",
    "counted down": """
h = w * w
for t in range(n, 0, -1):
    h = tl.sin(h * w + tl.load(x_ptr + t * 8 + i))
tl.store(y_ptr + i, h * h)
""",
    "in steps": """
h = w * w
for t in range(1, n, 3):
    h = tl.sin(h * w + tl.load(x_ptr + t * 8 + i))
tl.store(y_ptr + i, h * h)
""",
    "in a loop": """
h = w * w
s = w
for t in range(n):
    for u in range(t):
        h = tl.sin(h * w + tl.load(x_ptr + (t + u) * 8 + i))
        s += h * w
    h = h * tl.cos(h)
    s += h
tl.store(y_ptr + i, h * h + s)
""",
    "a scalar, with sums over lanes": """
h = tl.sum(w)
v = w
for t in range(n):
    x = tl.load(x_ptr + t * 8 + i, mask=i < 6)
    h = tl.sin(h * 0.3) + tl.sum(tl.where(i < 6, x * v, 0.0)) * 0.1
    v = v * h
tl.store(y_ptr + i, h * v)
""",
    "with branches": """
h = w
for t in range(n):
    x = tl.load(x_ptr + t * 8 + i)
    if t % 2 == 0:
        h = tl.sin(h * x)
    else:
        h = h * h
tl.store(y_ptr + i, h)
""",
    "values that change places": """
a = w
b = w * w
for t in range(n):
    a, b = b, a * tl.load(x_ptr + t * 8 + i)
tl.store(y_ptr + i, a + 2 * b)
""",
    "bools and integers": """
a = w
flag = w > 0.7
odd = 3
for t in range(n):
    x = tl.load(x_ptr + t * 8 + i)
    a = tl.where(flag, tl.sin(a) * x, a * (odd % 5))
    flag = flag ^ (x > 0.75)
    odd = odd * 7 % 11
tl.store(y_ptr + i, a)
""",
    "a tile of offsets": """
a = w
at = i
for t in range(n):
    a = tl.sin(a) * tl.load(x_ptr + at)
    at += 8 + i
tl.store(y_ptr + i, a)
""",
    "lanes that are not stored": """
h = tl.load(w_ptr) + tl.zeros([4], tl.float64)
z = tl.where(i < 6, 1.0 + i, 0.0).to(tl.float64)
for t in range(n):
    h = h * (0.5 / z) + tl.sum(tl.load(x_ptr + t * 8 + i))
tl.store(y_ptr + i, h, mask=i < 6)
""",
    "a running maximum that is a result": """
m = w - 2.0
for t in range(n):
    m = tl.maximum(m, tl.load(x_ptr + t * 8 + i) * t)
tl.store(y_ptr + i, m)
""",
    "a softmax that decays": """
m = tl.full([4], -10.0, tl.float64)
total = tl.zeros([4], tl.float64)
for t in range(n):
    x = tl.load(x_ptr + t * 8 + i) * w
    largest = tl.maximum(m, x)
    total = total * tl.exp(m - largest) * 0.5 + tl.exp(x - largest)
    m = largest
tl.store(y_ptr + i, m + tl.log(total + 1.0))
""",
    "a softmax with a learned sink": """
m = w
total = tl.full([4], 1.0, tl.float64)
for t in range(n):
    x = tl.load(x_ptr + t * 8 + i)
    largest = tl.maximum(m, x)
    total = total * tl.exp(m - largest) + tl.exp(x - largest)
    m = largest
for t in range(n):
    x = tl.load(x_ptr + t * 8 + i + 1) * w
    largest = tl.maximum(m, x)
    total = total * tl.exp(m - largest) + tl.exp(x - largest)
    m = largest
tl.store(y_ptr + i, m + tl.log(total))
""",
    "a matrix": """
j = tl.arange(0, 4)
s = tl.zeros([4, 4], tl.float64)
for t in range(n):
    k = tl.load(x_ptr + t * 8 + j)
    v = tl.load(x_ptr + t * 8 + j + 3)
    s = s * tl.sin(k)[:, None] + k[:, None] * v[None, :]
    s = s - tl.dot(s, s) * 0.01
    tl.store(y_ptr + t * 8 + i, tl.sum(s * w[:, None], 0))
tl.store(y_ptr + n * 8 + i, tl.sum(s, 0))
""",
    "bounds that are loaded": """
h = w * w
for t in range((tl.load(w_ptr) * 0).to(tl.int32) + n):
    h = tl.sin(h * w + tl.load(x_ptr + t * 8 + i))
tl.store(y_ptr + i, h * h)
""",
    "with a break": """
h = w * w
for t in range(7):
    h = tl.sin(h * w + tl.load(x_ptr + t * 8 + i))
    if t == n:
        break
tl.store(y_ptr + i, h * h)
""",
    "while": """
h = w * w
t = 0
while t < n:
    h = tl.sin(h * w + tl.load(x_ptr + t * 8 + i))
    t += 1
tl.store(y_ptr + i, h * h)
""",
    "an unknown number of times": """
a = w
m = n + 2
k = 0
while m > 1:
    a = tl.sin(a) * tl.load(x_ptr + k % 16 * 8 + i) + a * 0.5
    if m % 2 == 0:
        m = m // 2
    else:
        m = m * 3 + 1
    k += 1
tl.store(y_ptr + i, a)
""",
    "until it converges": """
a = w
d = tl.sum(w)
while d > 0.01:
    a = a * 0.7 + tl.load(x_ptr + i) * 0.01 * a
    d = tl.sum(a * a) - 0.1
tl.store(y_ptr + i, a * d)
""",
    "while in for": """
a = w
for t in range(n):
    u = 0
    while u < t:
        a = tl.sin(a) * tl.load(x_ptr + (u + t) * 8 + i)
        u += 1
    a = a * a
tl.store(y_ptr + i, a)
""",
    "for in while, whose condition computes": """
a = w
u = 0
while tl.sum(tl.sin(a) * tl.load(x_ptr + i)) + 5.0 > u * u:
    for t in range(n):
        a = tl.sin(a) * tl.load(x_ptr + t * 8 + i)
    u += 1
tl.store(y_ptr + i, a)
""",
}


def kernel(body: str) -> str:
    return HEAD + "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))


def arguments(n: int) -> Arrays:
    rng = np.random.default_rng(0)
    floats = {"x_ptr": rng.uniform(0.5, 1, 129), "w_ptr": rng.uniform(0.5, 1, 8)}
    return {**floats, "y_ptr": np.zeros(128), "n": n}


def interpreted(name: str) -> tuple[str, Arrays, Arrays, Arrays]:
    """A kernel of `LOOPS`, its arguments after it ran, cotangents of its results, and the gradients
    of the interpreter."""
    text, args = kernel(LOOPS[name]), arguments(5)
    module = forward_module(text, args, {})
    run_forward(module, 2, args)
    cotangents = {"y_ptr": np.random.default_rng(0).standard_normal(128)}
    return text, args, cotangents, vjp(module, 2, copied(args), cotangents, ("x_ptr", "w_ptr"))


def check(body: str, n: int) -> None:
    check_gradients(kernel(body), 2, arguments(n), ("x_ptr", "w_ptr"), ("y_ptr",))
