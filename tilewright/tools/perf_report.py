"""`perf_report`: measure a function over a range of arguments, as a table and a plot.

    @perf_report(Benchmark(x_names=["n"], x_vals=[2**i for i in range(12, 28)],
                           line_arg="provider", line_vals=["numpy", "kernel"],
                           line_names=["NumPy", "kernel"], plot_name="add", args={}, ylabel="GB/s"))
    def bench(n, provider):
        ms, low, high = do_bench(..., quantiles=(0.5, 0.2, 0.8))
        return gbps(ms), gbps(high), gbps(low)

    bench.run(print_data=True, save_path="out")

Plots require matplotlib, and data frames require pandas; both are optional.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_import

if TYPE_CHECKING:
    import csv
    import html
    import pathlib
else:
    csv = lazy_import("csv")
    html = lazy_import("html")
    pathlib = lazy_import("pathlib")

pyplot: Any = lazy_import("matplotlib.pyplot")
pandas: Any = lazy_import("pandas")


@dataclass
class Benchmark:
    """The range of arguments that a function is measured over.

    Attributes:
        x_names: the arguments that vary along the x axis.
        x_vals: their values; a tuple gives each of `x_names` its own value.
        line_arg: the argument that varies from line to line.
        line_vals, line_names: its values, and the labels of the lines.
        plot_name: name of the plot and of its files.
        args: values of further arguments.
        xlabel, ylabel: labels of the axes; `ylabel` is the unit of the results.
        x_log, y_log: whether the axes are logarithmic.
        styles: (colour, line style) of each line.
    """

    x_names: Sequence[str]
    x_vals: Sequence[Any]
    line_arg: str
    line_vals: Sequence[Any]
    line_names: Sequence[str]
    plot_name: str
    args: dict[str, Any]
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: Sequence[tuple[str, str]] | None = None


@dataclass
class Table:
    """The results of a benchmark.

    Attributes:
        columns: names of the columns, those of the x axis first.
        rows: the values of each row.
        low, high: bounds of the lines by row; None if the function returns no bounds.
    """

    columns: list[str]
    rows: list[list[Any]] = field(default_factory=list)
    low: list[list[Any]] = field(default_factory=list)
    high: list[list[Any]] = field(default_factory=list)

    def __str__(self) -> str:
        cells = [self.columns, *([_text(v) for v in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in cells
        )

    def to_csv(self, path: str | os.PathLike[str], index: bool = False) -> None:
        """Write the table to a CSV file. `index` is ignored; pandas has it."""
        with open(path, "w", newline="", encoding="utf-8") as out:
            csv.writer(out).writerows([self.columns, *self.rows])

    def to_frame(self) -> Any:
        """The table as a pandas.DataFrame.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        return pandas.DataFrame(self.rows, columns=self.columns)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class Mark:
    """A function with its benchmarks, as returned by `perf_report`."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Iterable[Benchmark]) -> None:
        self.fn = fn
        self.benchmarks = benchmarks
        self.__name__ = getattr(fn, "__name__", "benchmark")
        self.__doc__ = fn.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Measure all points.

        Args:
            show_plots: open a window for each plot.
            print_data: print the tables.
            save_path: a folder for a CSV file and a plot of each benchmark, and for results.html;
                created if missing.
            return_df: return the table: a pandas.DataFrame if pandas is installed, else a `Table`;
                a list of them for a list of benchmarks.
            kwargs: further arguments of the function. "diff_col" adds a column with the difference
                of two lines; "save_precision" is the number of decimals of results.
        """
        many = not isinstance(self.benchmarks, Benchmark)
        benchmarks = self.benchmarks if many else [self.benchmarks]
        tables: list[Table] = []
        listed = list(benchmarks)  # pyright: ignore[reportArgumentType]
        for benchmark in listed:
            table = self._measure(benchmark, kwargs)
            tables.append(table)
            if show_plots or save_path:
                _plot(benchmark, table, show_plots, save_path)
            if print_data:
                print(f"{benchmark.plot_name}:\n{table}")
            if save_path:
                os.makedirs(save_path, exist_ok=True)
                table.to_csv(pathlib.Path(save_path, f"{benchmark.plot_name}.csv"))
        if save_path:
            _write_page(pathlib.Path(save_path, "results.html"), listed)
        if not return_df:
            return None
        frames = [_frame(table) for table in tables]
        return frames if many else frames[0]

    def _measure(self, benchmark: Benchmark, given: dict[str, Any]) -> Table:
        options = dict(given)
        diff = options.pop("diff_col", False)
        precision = options.pop("save_precision", None)
        unit = f" ({benchmark.ylabel})" if benchmark.ylabel else ""
        names = [f"{name}{unit}" for name in benchmark.line_names]
        table = Table([*benchmark.x_names, *names])
        for x in benchmark.x_vals:
            xs = list(x) if isinstance(x, list | tuple) else [x] * len(benchmark.x_names)
            if len(xs) != len(benchmark.x_names):
                raise ValueError(f"Expected {len(benchmark.x_names)} values, got {x}")
            point = dict(zip(benchmark.x_names, xs, strict=True))
            results = [
                _bounds(self.fn(**point, **{benchmark.line_arg: y}, **benchmark.args, **options))
                for y in benchmark.line_vals
            ]
            middle, low, high = ([r[i] for r in results] for i in range(3))
            if precision is not None:
                middle = [round(v, precision) for v in middle]
            table.rows.append([*xs, *middle])
            table.low.append(low)
            table.high.append(high)
        if diff and len(names) == 2:
            table.columns.append("Diff")
            for row in table.rows:
                row.append(row[-1] - row[-2])
        return table


def _bounds(result: Any) -> tuple[Any, Any, Any]:
    """The result of a function, a number or (number, lower, upper), as the latter."""
    if isinstance(result, tuple | list):
        middle, low, high = result
        return middle, low, high
    return result, None, None


def _frame(table: Table) -> Any:
    try:
        return table.to_frame()
    except ModuleNotFoundError:
        return table


def _plot(benchmark: Benchmark, table: Table, show: bool, folder: str) -> None:
    try:
        figure, axes = pyplot.subplots()
    except ModuleNotFoundError:
        warnings.warn(
            f"{benchmark.plot_name} is not plotted: install matplotlib "
            "(`pip install tilewright[plot]`)",
            RuntimeWarning,
            stacklevel=3,
        )
        return
    first = len(benchmark.x_names)
    x = [row[0] for row in table.rows]
    for i, name in enumerate(benchmark.line_names):
        style: dict[str, Any] = {}
        if benchmark.styles:
            style = dict(zip(("color", "linestyle"), benchmark.styles[i], strict=False))
        line = axes.plot(x, [row[first + i] for row in table.rows], label=name, **style)[0]
        low, high = [row[i] for row in table.low], [row[i] for row in table.high]
        if None not in low and None not in high:
            axes.fill_between(x, low, high, alpha=0.15, color=line.get_color())
    axes.legend()
    axes.set_xlabel(benchmark.xlabel or benchmark.x_names[0])
    axes.set_ylabel(benchmark.ylabel)
    axes.set_xscale("log" if benchmark.x_log else "linear")
    axes.set_yscale("log" if benchmark.y_log else "linear")
    if folder:
        os.makedirs(folder, exist_ok=True)
        figure.savefig(pathlib.Path(folder, f"{benchmark.plot_name}.png"))
    if show:
        pyplot.show()
    pyplot.close(figure)


def _write_page(path: pathlib.Path, benchmarks: Iterable[Benchmark]) -> None:
    images = "\n".join(
        f'<img src="{html.escape(b.plot_name)}.png" alt="{html.escape(b.plot_name)}"/>'
        for b in benchmarks
        if path.with_name(f"{b.plot_name}.png").exists()
    )
    path.write_text(f"<html><body>\n{images}\n</body></html>\n", "utf-8")


def perf_report(
    benchmarks: Benchmark | Iterable[Benchmark],
) -> Callable[[Callable[..., Any]], Mark]:
    """Decorator that makes a function a `Mark`, whose `run` measures it.

    Args:
        benchmarks: one, or several. The function is called with their arguments by name and returns
            a number, or (number, lower bound, upper bound).
    """
    return lambda fn: Mark(fn, benchmarks)
