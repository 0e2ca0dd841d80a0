"""README, docs and --help tell the truth where a test can tell: links and anchors resolve, command lines parse."""

import re
import shlex
from pathlib import Path

import click
import pytest

from metromq.cli.main import group

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]*)`")
ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Headings as GitHub names them; a repeated heading gets a number."""
    found: set[str] = set()
    for title in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        text = LINK.sub(lambda link: link.group(0)[1 : link.group(0).index("]")], title).strip().lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found.add(next(each for n in range(100) if (each := f"{name}-{n}" if n else name) not in found))
    return found


def broken_links(page: Path) -> list[str]:
    broken: list[str] = []
    for target in LINK.findall(prose(page)):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and (file.suffix != ".md" or anchor not in anchors(file))):
            broken.append(target)
    return broken


def command_lines(text: str) -> list[str]:
    """Each `metromq ...` in code: inline, or a line of a block without its prompt and comment."""
    lines = [line.strip() for line in INLINE.findall(FENCE.sub("", text))]
    for block in FENCE.findall(text):
        lines += [re.sub(r"\s+#\s.*", "", line.strip().removeprefix("$ ")) for line in block.splitlines()]
    return [line for line in lines if re.match(rf"(?:{ASSIGNMENT.pattern} )*metromq( |$)", line)]


def help_examples() -> list[tuple[str, str]]:
    """The examples of every command's --help; two spaces part a command line from what it does."""
    found: list[tuple[str, str]] = []
    for name, command in commands(group, ()):
        lines = [line.strip() for line in (command.epilog or "").splitlines()]
        parts = [re.split(r" {2,}", line)[0] for line in lines]
        found += [
            (name, part.rpartition(" | ")[2])
            for part in parts
            if re.match(rf"(?:.* \| |{ASSIGNMENT.pattern} )?metromq ", part)
        ]
    return found


def commands(parent: click.Group, path: tuple[str, ...]) -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    context = click.Context(parent)
    for name in parent.list_commands(context):
        command = parent.get_command(context, name)
        assert command is not None
        found.append((" ".join((*path, name)), command))
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
    return found


def parse(line: str) -> None:
    """As a shell and click would read it; raises click's UsageError. In a synopsis only the options are checked."""
    words = shlex.split(re.sub(r"\\\|", "|", line).split(" > ")[0])
    words = [word for word in words if not ASSIGNMENT.fullmatch(word)][1:]
    command: click.Command = group
    while isinstance(command, click.Group):
        if not words or words[0].startswith("-") or words[0] == "COMMAND":
            return
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            raise click.UsageError(f"no command {words[0]}")
        command, words = found, words[1:]
    if any(word.startswith(("[", "...")) for word in words):
        known = {name for parameter in command.params for name in parameter.opts}
        unknown = [word for word in re.findall(r"(?<![\w-])--[\w-]+", line) if word not in known]
        if unknown:
            raise click.UsageError(f"no option {unknown[0]}")
        return
    context = click.Context(command, info_name="metromq", resilient_parsing=not words)
    command.parse_args(context, words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_anchors_resolve(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_are_accepted(page: Path) -> None:
    wrong: list[str] = []
    for line in command_lines(page.read_text()):
        try:
            parse(line)
        except (click.UsageError, ValueError) as error:
            wrong.append(f"{line}: {error}")
    assert wrong == []


def test_examples_of_every_command_are_accepted() -> None:
    examples = help_examples()
    for _, line in examples:
        parse(line)
    told = {name for name, _ in examples}
    names = {name for name, command in commands(group, ()) if command.params}
    assert names - told == set()


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title: one\n[a](#a-title-one) [b](#a-title) [c](gone.md) [d](page.md#no) [e](https://x)\n```\n[f](g)\n```\n"
    )
    assert broken_links(page) == ["#a-title", "gone.md", "page.md#no"]
    block = "```sh\n$ X=1 metromq pub -t a -m b --no  # a comment\n$ metromq status\n```\n"
    text = f"`metromq up --nothing`\n{block}metromq in prose"
    lines = command_lines(text)
    assert lines == ["metromq up --nothing", "X=1 metromq pub -t a -m b --no", "metromq status"]
    for line in lines[:2]:
        with pytest.raises(click.UsageError):
            parse(line)
    with pytest.raises(click.UsageError):
        parse("metromq nothing")
    with pytest.raises(click.UsageError):
        parse("metromq up [CITY] [--dat DIR]")
    parse(lines[2])
    assert len(command_lines((ROOT / "README.md").read_text())) >= 8
