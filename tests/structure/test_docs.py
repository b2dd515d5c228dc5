"""The documentation is consistent with the package, and settings are read in one place."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.structure.sources import parsed
from tilewright.base.knobs import render_docs
from tilewright.compiler.pipeline import pipeline
from tilewright.targets.registry import target as find_target

ROOT = Path(__file__).parents[2]

# What a user types first, and what .ci/run runs as it stands.
README_COMMANDS = [
    "pip install . && python examples/fused_softmax.py",
    "pip install torch==2.13.0 '.[test]' && pytest",
]

FENCED = re.compile(r"^(```|~~~)[^\n]*\n(.*?)^\1[ \t]*$", re.DOTALL | re.MULTILINE)
INLINE_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(
    r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE
)
HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def _first_code_block(text: str) -> list[str]:
    block = FENCED.search(text)
    return block.group(2).splitlines() if block else []


def test_readme_starts_with_the_two_commands() -> None:
    assert _first_code_block((ROOT / "README.md").read_text("utf-8")) == README_COMMANDS


def _documents(root: Path) -> Iterator[Path]:
    """The Markdown files of the checkout, without those of environments and tools."""
    yield from sorted(root.glob("*.md"))
    for folder in ("docs", "examples", "tests", "tilewright", "benchmarks"):
        yield from sorted((root / folder).rglob("*.md"))


def _anchors(text: str) -> set[str]:
    """The `#anchor` of each heading, by GitHub's rule; a repeated heading gets a number."""
    anchors: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        numbered = (f"{slug}-{i}" for i in range(1, len(anchors) + 1))
        anchors.add(next(a for a in (slug, *numbered) if a not in anchors))
    return anchors


def link_faults(root: Path) -> list[str]:
    """The relative links in the documents below `root` that lead nowhere."""
    faults: list[str] = []
    for document in _documents(root):
        prose = INLINE_CODE.sub("", FENCED.sub("", document.read_text("utf-8")))
        for inline, reference in LINK.findall(prose):
            link = inline or reference
            if ELSEWHERE.match(link):
                continue
            path, _, anchor = unquote(link).partition("#")
            target = (document.parent / path).resolve() if path else document
            if not target.exists():
                faults.append(f"{document.relative_to(root)}: {link}: no such file")
            elif anchor and target.suffix == ".md" and anchor not in _anchors(target.read_text()):
                faults.append(f"{document.relative_to(root)}: {link}: no such heading")
    return faults


def test_relative_links_resolve() -> None:
    faults = link_faults(ROOT)
    assert not faults, "\n" + "\n".join(faults)


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("# A page\n## What's `new`?\n## A page\n")
    (tmp_path / "README.md").write_text(
        "[good](docs/page.md) [good](docs/page.md#whats-new) [good](docs/page.md#a-page-1)\n"
        "[good](docs) [good](https://example.org/x) `[code](not/read)` [own](#title)\n"
        "```\n[code](not/read)\n# Not a heading\n```\n"
        "[file](docs/missing.md) [anchor](docs/page.md#missing) [own](#not-a-heading)\n\n"
        "# Title\n[reference]: docs/absent.md\n"
    )
    assert link_faults(tmp_path) == [
        "README.md: docs/missing.md: no such file",
        "README.md: docs/page.md#missing: no such heading",
        "README.md: #not-a-heading: no such heading",
        "README.md: docs/absent.md: no such file",
    ]


def test_settings_are_not_stale() -> None:
    assert (ROOT / "docs" / "knobs.md").read_text("utf-8") == render_docs(), (
        'run python -c "from tilewright.base.knobs import render_docs; '
        "print(render_docs(), end='')\" > docs/knobs.md"
    )


def test_the_architecture_lists_the_passes_in_the_order_in_which_they_run() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8").split("\n## The folders")[0]
    named = [
        name
        for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
        for name in re.findall(r"(?:\w+/)*(\w+)", row)
    ]
    steps = pipeline(find_target("cuda:90"))
    files = list(dict.fromkeys(step.pass_.apply.__module__.rpartition(".")[2] for step in steps))
    files.remove("scaled_kinds")  # expands what the rows around it leave
    assert [name for name in named if name in files] == files, (
        "docs/architecture.md: name the file of each pass in the tables of passes, in this order"
    )


def test_the_index_of_decisions_has_their_titles_in_order() -> None:
    folder = ROOT / "docs" / "decisions"
    rows = re.findall(
        r"^\| \[(\d+)\]\((.*)\) \| (.*?)(?: \(superseded .*\))? \|$",
        (folder / "README.md").read_text("utf-8"),
        re.MULTILINE,
    )
    titles = [
        (path.name[:4], path.name, path.read_text("utf-8").splitlines()[0].removeprefix("# "))
        for path in sorted(folder.glob("0*.md"))
    ]
    assert rows == titles


CODE = re.compile(r"`([\w./]+)`(?: in `([\w./]+)`)?")


def citation_faults(records: Path, packages: Sequence[Path]) -> list[str]:
    """The files that decision records name, and the functions of files, that do not exist."""
    files = [path for folder in packages for path in folder.rglob("*.py")]
    paths = [path.as_posix() for path in files]
    folders = {folder.name for package in packages for folder in package.iterdir()}
    faults: list[str] = []
    for record in sorted(records.glob("0*.md")):
        for name, place in CODE.findall(FENCED.sub("", record.read_text("utf-8"))):
            cited = place or name
            is_path = cited.partition("/")[0] in folders and "/" in cited
            if not (is_path or cited.endswith(".py")):
                continue
            stem = f"/{cited.removesuffix('.py').rstrip('/')}"
            matches = [
                f for f, p in zip(files, paths, strict=True) if f"{stem}." in p or f"{stem}/" in p
            ]
            if not matches:
                faults.append(f"{record.name}: {cited}: no such file")
            elif place and not any(name.split(".")[-1] in f.read_text("utf-8") for f in matches):
                faults.append(f"{record.name}: {name}: not in {place}")
    return faults


def test_files_and_functions_that_decisions_cite_exist() -> None:
    names = ("tilewright", "tests", "benchmarks", "plugins")
    faults = citation_faults(ROOT / "docs" / "decisions", [ROOT / name for name in names])
    assert not faults, "\n" + "\n".join(faults)


def test_stale_citations_are_reported(tmp_path: Path) -> None:
    (tmp_path / "package" / "passes").mkdir(parents=True)
    (tmp_path / "package" / "passes" / "fold.py").write_text("def run(): ...")
    (tmp_path / "0001-a.md").write_text(
        "`fold.py` `passes/fold` `run` in `passes/fold.py` `a/b` `fuse.py` `passes/fuse` "
        "`go` in `fold.py`\n"
    )
    assert citation_faults(tmp_path, [tmp_path / "package"]) == [
        "0001-a.md: fuse.py: no such file",
        "0001-a.md: passes/fuse: no such file",
        "0001-a.md: go: not in fold.py",
    ]


KNOBS = "base/knobs.py"
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def _environment_uses(path: Path) -> Iterator[int]:
    """The lines on which the module touches the environment of the process."""
    text = path.read_text("utf-8")
    if not any(name in text for name in ENVIRONMENT):
        return
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Attribute(attr=name) if name in ENVIRONMENT:
                yield node.lineno
            case ast.ImportFrom(module="os" | "posix", names=names) if ENVIRONMENT & {
                alias.name for alias in names
            }:
                yield node.lineno
            case _:
                pass


def environment_faults(root: Path) -> list[str]:
    """Where the package in `root` reads or sets the environment without going through the knobs."""
    return [
        f"{path.relative_to(root).as_posix()}:{line}: only {KNOBS} reads the environment"
        for path in sorted(root.rglob("*.py"))
        if path.relative_to(root).as_posix() != KNOBS
        for line in _environment_uses(path)
    ]


def test_only_knobs_read_the_environment() -> None:
    root = ROOT / "tilewright"
    assert (root / KNOBS).exists()
    faults = environment_faults(root)
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(
    "text",
    [
        "import os\nx = os.environ['HOME']",
        "import os as o\nx = o.getenv('HOME')",
        "import os\ndef f(): os.putenv('A', 'b')",
        "from os import environ as e",
        "from os import path, getenv",
    ],
)
def test_reading_the_environment_elsewhere_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "knobs.py").write_text(text)
    assert environment_faults(tmp_path) == []
    (tmp_path / "base" / "other.py").write_text(text)
    faults = environment_faults(tmp_path)
    assert len(faults) == 1
    assert faults[0].startswith("base/other.py:")
