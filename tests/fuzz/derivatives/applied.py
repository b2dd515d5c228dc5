"""Random kernels of what people write kernels for: those of tiles and sequences; see
`applied_rows.py` for those of rows."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzz.derivatives.applied_rows import AppliedRows

FAMILIES = (
    "norm", "norm", "group_norm", "cross_entropy", "pair_loss", "contrastive", "gate", "rope",
    "convolution", "pooling", "flat", "selective_scan", "linear_attention", "chunks", "scan",
    "while", "attention", "attention", "product", "product", "experts", "router", "quantised",
    "table", "descriptors",
)  # fmt: skip


@dataclass
class Applied(AppliedRows):
    """A random kernel of a kind that people write."""

    families = FAMILIES

    # -- convolutions -----------------------------------------------------------------------------

    def _convolution(self) -> None:
        """Along time, of each channel by itself, from the elements before."""
        m, n, taps = int(self.rng.integers(2, 9)), self.pick(1, 2, 3), self.pick(1, 2, 3, 4)
        dilation, images = self.pick(1, 1, 2), self.pick(1, 2)
        x, w = self.array("x", images, m, n), self.array("w", n, taps)
        y = self.output("y", images, m, n)
        self.numbers(m=m, n=n)
        tile = self.pick(2, 4)
        self.grid = (-(-m // tile), images)
        self.add(f"i, j = tl.program_id(0) * {tile} + tl.arange(0, {tile}), tl.arange(0, 4)",
                 "image = tl.program_id(1)",
                 f"acc = tl.zeros([{tile}, 4], tl.float64)")  # fmt: skip
        if self.use("a bias", 0.4):
            self.add(f"acc += {self.load(self.array('b', n) + ' + j', 'j < n')}[None, :]")
        kind = self.pick("range", "tl.static_range")
        self.open(f"for k in {kind}({taps}):")
        causal = self.pick(taps - 1, (taps - 1) // 2)
        self.add(f"at = i + (k - {causal}) * {dilation}",
                 "inside = ((at >= 0) & (at < m))[:, None] & (j < n)[None, :]")  # fmt: skip
        place = f"{x} + (image * m + at)[:, None] * n + j[None, :]"
        self.add(f"x = {self.load(place, 'inside')}",
                 f"w = {self.load(f'{w} + j * {taps} + k', 'j < n')}")  # fmt: skip
        self.add(self.pick("acc += x * w[None, :]", "acc = tl.fma(x, tl.broadcast_to(w[None, :], "
                           "x.shape), acc)"))  # fmt: skip
        self.close()
        value = self.activation("acc") if self.chance(0.6) else "acc"
        self.store(f"{y} + (image * m + i)[:, None] * n + j[None, :]", value,
                   "(i < m)[:, None] & (j < n)[None, :]")  # fmt: skip

    def _pooling(self) -> None:
        """Windows of an image that may overlap: means or maxima."""
        h, w, size, stride = (
            self.pick(3, 4, 5),
            self.pick(3, 4, 5),
            self.pick(2, 3),
            self.pick(1, 2),
        )
        oh, ow = (h - size) // stride + 1, (w - size) // stride + 1
        if min(oh, ow) < 1:
            oh, ow, size = h, w, 1
            stride = 1
        images = self.pick(1, 2)
        x, y = self.array("x", images, h, w), self.output("y", images, oh, ow)
        self.numbers(h=h, w=w, oh=oh, ow=ow)
        greatest = self.use("maxima", 0.5)
        self.grid = (images,)
        start = "-float('inf')" if greatest else "0.0"
        self.add("k = tl.arange(0, 32)", "keep = k < oh * ow", "r, c = k // ow, k % ow",
                 f"acc = tl.full([32], {start}, tl.float64)")  # fmt: skip
        self.open(f"for a in range({size}):")
        self.open(f"for b in range({size}):")
        place = f"{x} + (tl.program_id(0) * h + r * {stride} + a) * w + c * {stride} + b"
        self.add(
            f"x = {self.load(place, 'keep', start)}",
            "acc = tl.maximum(acc, x)" if greatest else f"acc += x / {size * size}",
        )
        self.close(2)
        self.store(f"{y} + tl.program_id(0) * (oh * ow) + k", "acc", "keep")

    def _flat(self) -> None:
        """A tensor by flat indices, so that lanes have weights of channels in common."""
        images, channels, pixels = self.pick(1, 2, 3), self.pick(1, 2, 3, 5), self.pick(1, 2, 3, 7)
        count, tile = images * channels * pixels, self.pick(4, 8, 16)
        x, w = self.array("x", images, channels, pixels), self.array("w", channels)
        y = self.output("y", images, channels, pixels)
        self.numbers(n=count, c=channels, p=pixels)
        self.grid = (-(-count // tile),)
        self.add(f"at = tl.program_id(0) * {tile} + tl.arange(0, {tile})", "keep = at < n",
                 f"x = {self.load(f'{x} + at', 'keep')}",
                 f"w = {self.load(f'{w} + at // p % c', 'keep')}")  # fmt: skip
        value = self.pick("x * w", "tl.where(x > 0, x, w * x)", "tl.sin(w) + x")
        if self.use("weights of pixels", 0.4):
            v = self.array("v", pixels)
            self.add(f"v = {self.load(f'{v} + at % p', 'keep')}")
            value = f"({value}) * v"
        if self.use("pairs of elements", 0.3):
            u = self.array("u", count)
            self.add(f"u = {self.load(f'{u} + at // 2', 'keep')}")
            value = f"{value} + u"
        self.store(f"{y} + at", value, "keep")

    # -- recurrences ------------------------------------------------------------------------------

    def _selective_scan(self) -> None:
        """A state of each channel over time, whose decay depends on the input."""
        t, channels, states = int(self.rng.integers(1, 6)), self.pick(1, 2, 3), self.pick(1, 2, 3)
        x, dt = self.array("x", t, channels), self.array("dt", t, channels)
        b, c = self.array("b", t, states), self.array("c", t, states)
        a = self.array("a", channels, states, low=0.1)
        y = self.output("y", t, channels)
        self.numbers(t=t, channels=channels, states=states)
        self.grid = (-(-channels // 2),)
        self.add("i, s = tl.program_id(0) * 2 + tl.arange(0, 2), tl.arange(0, 4)",
                 "inside = (i < channels)[:, None] & (s < states)[None, :]",
                 f"a = {self.load(f'{a} + i[:, None] * states + s[None, :]', 'inside')}",
                 "h = tl.zeros([2, 4], tl.float64)")  # fmt: skip
        if self.use("a first state", 0.3):
            h = self.array("h", channels, states)
            self.add(f"h = {self.load(f'{h} + i[:, None] * states + s[None, :]', 'inside')}")
        skip = self.use("a direct part", 0.4)
        if skip:
            self.add(f"d = {self.load(self.array('d', channels) + ' + i', 'i < channels')}")
        loop = self.pick("for", "while", "bumped")
        self.used.add(f"time: {loop}")
        step, at = "step", "step * channels"
        if loop == "while":
            self.add("step = tl.program_id(0) * 0")
            self.open("while step < t:")
        elif loop == "bumped":
            self.add(f"x_at, dt_at = {x} + i, {dt} + i")
            self.open("for step in range(t):")
        else:
            every = self.pick("", "", ", ad_checkpoint=2")
            self.open(f"for step in tl.range(0, t{every}):")
        places = ("x_at", "dt_at") if loop == "bumped" else (f"{x} + {at} + i", f"{dt} + {at} + i")
        self.add(f"x = {self.load(places[0], 'i < channels')}",
                 f"dt = softplus({self.load(places[1], 'i < channels')})",
                 f"b = {self.load(f'{b} + {step} * states + s', 's < states')}",
                 f"c = {self.load(f'{c} + {step} * states + s', 's < states')}",
                 "h = h * tl.exp(-dt[:, None] * a) + (dt * x)[:, None] * b[None, :]",
                 "o = tl.sum(h * c[None, :], 1)")  # fmt: skip
        if skip:
            self.add("o += d * x")
        if self.use("a gate", 0.3):
            z = self.array("z", t, channels)
            self.add(f"o = o * silu({self.load(f'{z} + {at} + i', 'i < channels')})")
        self.store(f"{y} + {at} + i", "o", "i < channels")
        if loop == "bumped":
            self.add("x_at += channels", "dt_at += channels")
        if loop == "while":
            self.add("step += 1")
        self.close()
        if self.use("the last state", 0.4):
            last = self.output("last", channels, states, aux=0.3)
            self.store(f"{last} + i[:, None] * states + s[None, :]", "h", "inside")

    def _linear_attention(self) -> None:
        """A matrix that outer products are added to, with a decay, a gate, or a delta rule."""
        t, d, e, heads = int(self.rng.integers(1, 6)), self.pick(1, 3, 4), self.pick(2, 3), 2
        q, k = self.array("q", heads, t, d), self.array("k", heads, t, d)
        v, y = self.array("v", heads, t, e), self.output("y", heads, t, e)
        kind = self.pick("sum", "decay", "gate", "delta")
        self.used.add(f"linear attention: {kind}")
        g = (
            self.array("g", heads, *((t,) if kind in ("gate", "delta") else ()))
            if kind != "sum"
            else ""
        )
        self.numbers(t=t, d=d, e=e)
        self.grid = (heads,)
        self.add("head, i, j = tl.program_id(0), tl.arange(0, 4), tl.arange(0, 4)",
                 "s = tl.zeros([4, 4], tl.float64)")  # fmt: skip
        if kind == "decay":
            self.add(f"decay = tl.sigmoid({self.load(f'{g} + head')})")
        self.open("for step in range(t):")
        self.add(f"q = {self.load(f'{q} + (head * t + step) * d + i', 'i < d')} * 0.5",
                 f"k = {self.load(f'{k} + (head * t + step) * d + i', 'i < d')}",
                 f"v = {self.load(f'{v} + (head * t + step) * e + j', 'j < e')}")  # fmt: skip
        if kind in ("gate", "delta"):
            self.add(f"g = tl.sigmoid({self.load(f'{g} + head * t + step')})")
        if self.chance(0.3):
            self.add("k = k / tl.sqrt(tl.sum(k * k) + 0.1)")
        update = "k[:, None] * (g * (v - tl.sum(s * k[:, None], 0)))[None, :]"
        self.add({"sum": "s += k[:, None] * v[None, :]",
                  "decay": "s = s * decay + k[:, None] * v[None, :]",
                  "gate": "s = s * g + k[:, None] * v[None, :]",
                  "delta": f"s += {update}"}[kind],
                 "o = tl.sum(s * q[:, None], 0)")  # fmt: skip
        self.store(f"{y} + (head * t + step) * e + j", "o", "j < e")

    def _chunks(self) -> None:
        """Linear attention in chunks: products within a chunk, and with the state before it."""
        t, chunk, d, e = int(self.rng.integers(1, 11)), self.pick(2, 4), 2, 2
        q, k = self.array("q", t, d), self.array("k", t, d)
        v, y = self.array("v", t, e), self.output("y", t, e)
        gates = self.use("gates of a chunk", 0.6)
        g = self.array("g", t, low=-0.5, high=-0.1) if gates else ""
        self.numbers(t=t)
        self.grid = (1,)
        self.add(f"i, a = tl.arange(0, {chunk}), tl.arange(0, 2)",
                 "s = tl.zeros([2, 2], tl.float64)")  # fmt: skip
        self.open(f"for start in range(0, t, {chunk}):")
        row = "(start + i < t)[:, None]"
        self.add(*(f"{n} = {self.load(f'{p} + (start + i)[:, None] * 2 + a[None, :]', row)}"
                   for n, p in (("q", q), ("k", k), ("v", v))))  # fmt: skip
        self.add("w = tl.dot(q, tl.trans(k))", "causal = i[:, None] >= i[None, :]")
        if gates:
            self.add(
                f"g = tl.cumsum({self.load(f'{g} + start + i', 'start + i < t')}, 0)",
                "w = tl.where(causal, w * tl.exp(g[:, None] - g[None, :]), 0.0)",
                "end = tl.sum(tl.where(i == tl.max(i, 0), g, 0.0), 0)",
                "o = tl.dot(w, v) + tl.dot(q * tl.exp(g)[:, None], s)",
                "s = s * tl.exp(end) + tl.dot(tl.trans(k * tl.exp(end - g)[:, None]), v)",
            )
        else:
            self.add("w = tl.where(causal, w, 0.0)", "o = tl.dot(w, v) + tl.dot(q, s)",
                     "s = tl.dot(tl.trans(k), v, s)")  # fmt: skip
        self.store(f"{y} + (start + i)[:, None] * 2 + a[None, :]", "o", row)

    def _scan(self) -> None:
        """Gated sums along a row, by a scan, perhaps in chunks with what is carried."""
        m, n = self.m, self.n
        a, x, y = self.array("a", m, n), self.array("x", m, n), self.output("y", m, n)
        self.rows()
        chunked = self.use("chunks", 0.4)
        backwards = not chunked and self.use("from the end", 0.3)
        self.add("h = tl.full([], 0.0, tl.float64)")
        self.open("for start in range(0, n, 4):") if chunked else self.add("start = 0")
        size = 4 if chunked else self.block
        self.add(f"j = start + tl.arange(0, {size})",
                 f"a = tl.sigmoid({self.load(f'{a} + row * n + j', 'j < n')})",
                 f"x = {self.load(f'{x} + row * n + j', 'j < n')}")  # fmt: skip
        kind = self.pick("gated", "gated", "cumsum", "cumprod", "logarithms", "maxima")
        self.used.add(f"scan: {kind}")
        reverse = ", reverse=True" if backwards else ""
        self.add({
            "gated": f"p, z = tl.associative_scan((a, (1.0 - a) * x), 0, gated{reverse})",
            "cumsum": f"p, z = a * 0.0, tl.cumsum(a * x, 0{reverse})",
            "cumprod": f"p, z = a, tl.cumprod(1.0 + 0.2 * x * a, 0{reverse})",
            "maxima": f"p, z = a * 0.0, tl.associative_scan(a + x, 0, soft_max{reverse})",
            "logarithms": f"p, z = a, tl.exp(tl.cumsum(tl.log(a), 0{reverse}) * 0.3) * x",
        }[kind])  # fmt: skip
        if chunked:
            self.add("z = z + p * h", f"h = tl.sum(tl.where(j == start + {size - 1}, z, 0.0), 0)")
        self.store(f"{y} + row * n + j", "z", "j < n")

    def _while(self) -> None:
        """A number of iterations that is loaded, or that a value decides."""
        m, n = self.m, self.n
        x, y = self.array("x", m, n, low=0.2), self.output("y", m, n)
        self.rows()
        self.add(f"j = tl.arange(0, {self.block})",
                 f"x = {self.load(f'{x} + row * n + j', 'j < n', '1.0')}",
                 "z, k = x * 0.0 + 1.0, row * 0")  # fmt: skip
        kind = self.pick("loaded", "converges", "for of loaded")
        self.used.add(f"trips: {kind}")
        if kind == "converges":
            self.open("while (k < 5) & (tl.max(tl.abs(z * z - x), 0) > 0.2):")
        else:
            self.add(f"stop = tl.load({self.integers('t', 0, 4, m)} + row).to(tl.int32)")
            self.open("while k < stop:" if kind == "loaded" else "for k in range(0, stop):")
        self.add(self.pick("z = 0.5 * (z + x / z)", "z = z - 0.2 * (z * z - x)",
                           "z = tl.sin(z) + x * 0.5"))  # fmt: skip
        if kind != "for of loaded":
            self.add("k += 1")
        self.close()
        self.store(f"{y} + row * n + j", "z", "j < n")

    # -- attention --------------------------------------------------------------------------------

    def _attention(self) -> None:
        """Queries of a tile with all keys at once, or in blocks; how scores are changed."""
        m, n, d, heads = self.m, int(self.rng.integers(1, 9)), self.pick(2, 3, 4), self.pick(1, 2)
        share = self.pick(1, 2)
        q, y = self.array("q", heads, m, d), self.output("y", heads, m, d)
        groups = -(-heads // share)
        k, v = self.array("k", groups, n, d), self.array("v", groups, n, d)
        self.numbers(m=m, n=n)
        tile, keys = self.pick(2, 4), self.pick(4, 8)
        self.grid = (-(-m // tile), heads)
        self.add(f"i, e = tl.program_id(0) * {tile} + tl.arange(0, {tile}), tl.arange(0, 4)",
                 "head = tl.program_id(1)", f"group = head // {share}",
                 f"rows = (i < m)[:, None] & (e < {d})[None, :]",
                 f"q_at = (head * m + i)[:, None] * {d} + e[None, :]",
                 f"q = {self.load(f'{q} + q_at', 'rows')}")  # fmt: skip
        if self.use("normalised queries", 0.25):
            self.add(f"q = q * tl.rsqrt(tl.sum(q * q, 1) / {d} + 0.05)[:, None]")
        if self.use("rotated queries", 0.25):
            c = self.array("c", m, 4)
            self.add(f"c = {self.load(f'{c} + i[:, None] * 4 + e[None, :]', '(i < m)[:, None]')}",
                     "q = q * tl.cos(c) + tl.flip(q, 1) * tl.sin(c)")  # fmt: skip
        zeros = f"tl.zeros([{tile}], tl.float64)"
        low = self.pick("-float('inf')", "-1e30")
        self.add(f"peak, total = {zeros} + {low}, {zeros}",
                 f"acc = tl.zeros([{tile}, 4], tl.float64)")  # fmt: skip
        dropped = self.use("dropout", 0.2)
        self.open(f"for start in range(0, n, {keys}):")
        place = f"(group * n + j)[:, None] * {d} + e[None, :]"
        cols = f"(j < n)[:, None] & (e < {d})[None, :]"
        self.add(f"j = start + tl.arange(0, {keys})", f"k = {self.load(f'{k} + {place}', cols)}",
                 f"v = {self.load(f'{v} + {place}', cols)}",
                 f"s = {self.pick('tl.dot(q, tl.trans(k))', self.PRODUCT)} * 0.6")  # fmt: skip
        self._scores(m, n)
        self.add(
            f"s = tl.where((j < n)[None, :], s, {low})",
            "larger = tl.maximum(peak, tl.max(s, 1))",
            "p = tl.exp(s - larger[:, None])",
            "shrink = tl.exp(peak - larger)",
            "total = total * shrink + tl.sum(p, 1)",
        )
        if dropped:
            self.add("p = tl.where(tl.rand(3, i[:, None] * n + j[None, :]) > 0.3, p / 0.7, 0.0)")
        self.add("acc = acc * shrink[:, None] + tl.dot(p, v)", "peak = larger")
        self.close()
        if self.use("a sink", 0.2):
            sink = self.array("sink", heads)
            self.add(f"total += tl.exp({self.load(f'{sink} + head')} - peak)")
        self.add("z = acc / total[:, None]")
        if self.use("a gate", 0.2):
            g = self.array("g", heads, m, d)
            self.add(f"z = z * tl.sigmoid({self.load(f'{g} + q_at', 'rows')})")
        self.store(f"{y} + q_at", "z", "rows")
        if self.use("log of the sum", 0.4):
            self.store(f"{self.output('lse', heads, m, aux=0.7)} + head * m + i",
                       "peak + tl.log(total)", "i < m")  # fmt: skip

    def _scores(self, m: int, n: int) -> None:
        kind = self.pick("plain", "bias", "slope", "cap", "causal", "table", "mask")
        self.used.add(f"scores: {kind}")
        inside = "(i < m)[:, None] & (j < n)[None, :]"
        if kind == "bias":
            b = self.array("b", m, n)
            self.add(f"s += {self.load(f'{b} + i[:, None] * n + j[None, :]', inside)}")
        elif kind == "slope":
            slope = self.load(self.array("slope", 2) + " + head")
            self.add(f"s -= {slope} * tl.abs(i[:, None] - j[None, :]).to(tl.float64)")
        elif kind == "cap":
            self.add("s = 2.0 * (2.0 * tl.sigmoid(s) - 1.0)")
        elif kind == "causal":
            self.add("s = tl.where(i[:, None] + 1 >= j[None, :], s, -1e30)")
        elif kind == "table":
            b = self.array("b", m + n)
            self.add(f"s += {self.load(f'{b} + i[:, None] - j[None, :] + n - 1', inside)}")
        elif kind == "mask":
            t = self.integers("keep", 0, 2, m, n)
            self.args[t][:, 0] = 1
            self.add(f"s = tl.where(tl.load({t} + i[:, None] * n + j[None, :], mask={inside}, "
                     "other=1) > 0, s, -1e30)")  # fmt: skip

    # -- products ---------------------------------------------------------------------------------

    def _product(self) -> None:
        """A layer: weights that are turned, scaled or gated, and what follows the sum."""
        m, n, k = self.m, int(self.rng.integers(1, 9)), int(self.rng.integers(1, 9))
        x, w = self.array("x", m, k), self.array("w", n, k)
        y = self.output("y", m, n)
        self.numbers(m=m, n=n, k=k)
        bm, bn = self.pick(2, 4), self.pick(2, 4)
        split = self.use("split sums", 0.2)
        self.grid = (-(-m // bm), -(-n // bn), 2 if split else 1)
        gate = not split and self.use("two weights", 0.3)
        self.add(f"i = tl.program_id(0) * {bm} + tl.arange(0, {bm})",
                 f"j = tl.program_id(1) * {bn} + tl.arange(0, {bn})",
                 f"acc = tl.zeros([{bm}, {bn}], tl.float64)")  # fmt: skip
        u = self.array("u", n, k) if gate else ""
        if gate:
            self.add("more = acc * 1.0")
        gathered = self.use("gathered rows", 0.2)
        rows = "i"
        if gathered:
            self.args[x] = self.rng.uniform(-1, 1, (3, k))
            self.add(f"r = tl.load({self.integers('t', 0, 3, m)} + i, mask=i < m, other=0)")
            rows = "r"
        first, step = ("tl.program_id(2) * 4", 8) if split else ("0", 4)
        self.open(f"for start in range({first}, k, {step}):")
        x_mask, w_mask = (
            "(i < m)[:, None] & (kk < k)[None, :]",
            "(j < n)[:, None] & (kk < k)[None, :]",
        )
        self.add("kk = start + tl.arange(0, 4)",
                 f"x = {self.load(f'{x} + {rows}[:, None] * k + kk[None, :]', x_mask)}",
                 f"w = {self.load(f'{w} + j[:, None] * k + kk[None, :]', w_mask)}")  # fmt: skip
        if self.use("scales of blocks", 0.25):
            s = self.array("s", n, -(-k // 4), low=0.5)
            self.add(f"w = w * {self.load(f'{s} + j * tl.cdiv(k, 4) + start // 4', 'j < n')}"
                     "[:, None]")  # fmt: skip
        if self.use("a norm before", 0.2):
            r = self.array("r", m, low=0.5)
            self.add(f"x = x * {self.load(f'{r} + i', 'i < m')}[:, None]")
        self.add("acc = tl.dot(x, tl.trans(w), acc)")
        if gate:
            self.add(f"u = {self.load(f'{u} + j[:, None] * k + kk[None, :]', w_mask)}",
                     "more += tl.dot(x, tl.trans(u))")  # fmt: skip
        self.close()
        inside = "(i < m)[:, None] & (j < n)[None, :]"
        if gate:
            self.add(f"acc = {self.activation('acc')} * more")
        elif not split:
            if self.use("a bias", 0.4):
                self.add(f"acc += {self.load(self.array('b', n) + ' + j', 'j < n')}[None, :]")
            if self.use("an activation", 0.5):
                self.add(f"acc = {self.activation('acc')}")
        if split:
            self.add(f"tl.atomic_add({y} + i[:, None] * n + j[None, :], acc, mask={inside})")
        else:
            self.store(f"{y} + i[:, None] * n + j[None, :]", "acc", inside)

    def _experts(self) -> None:
        """Rows that are sorted by expert: gathered, multiplied, scaled, and put back."""
        tokens, experts, d, e = self.m, self.pick(1, 2, 3), self.pick(2, 4), self.pick(2, 3)
        top = self.pick(1, 2)
        count = tokens * top
        x, w = self.array("x", tokens, d), self.array("w", experts, e, d)
        order = self.integers("t", 0, 1, count)
        self.args[order][:] = self.rng.permutation(count)
        chosen = self.integers("e", 0, experts, -(-count // 2))
        self.numbers(count=count)
        self.grid = (-(-count // 2),)
        token = f"(t // {top})[:, None] * {d} + c[None, :]"
        weight = f"(expert * {e} + j)[:, None] * {d} + c[None, :]"
        self.add("i, j = tl.program_id(0) * 2 + tl.arange(0, 2), tl.arange(0, 4)",
                 f"c = tl.arange(0, {d})",
                 f"t = tl.load({order} + i, mask=i < count, other=0)",
                 f"expert = tl.load({chosen} + tl.program_id(0))",
                 f"x = {self.load(f'{x} + {token}', '(i < count)[:, None]')}",
                 f"w = {self.load(f'{w} + {weight}', f'(j < {e})[:, None]')}",
                 "z = tl.dot(x, tl.trans(w))")  # fmt: skip
        if self.use("weights of routes", 0.6):
            g = self.array("g", count)
            self.add(f"z = z * {self.load(f'{g} + t', 'i < count')}[:, None]")
        inside = f"(i < count)[:, None] & (j < {e})[None, :]"
        if self.use("added to tokens", 0.4):
            y = self.output("y", tokens, e)
            self.add(f"tl.atomic_add({y} + (t // {top})[:, None] * {e} + j[None, :], z, "
                     f"mask={inside})")  # fmt: skip
        else:
            y = self.output("y", count, e)
            self.store(f"{y} + i[:, None] * {e} + j[None, :]", "z", inside)
