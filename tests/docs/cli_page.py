"""docs/reference/cli.md: each command of `berth` with its arguments and options, from its own parser."""

import argparse
from collections.abc import Iterator

from berth.cli.arguments import build_parser
from tests.docs.text import item, sentences

_HEAD = """\
# Command line

<!-- Written by `make docs` from the command's own options: change those. -->

`berth --help` lists the commands; each shows what stands here when it gets `--help`.
Variables such as `BERTH_STORE` are explained in [settings](settings.md).
[Screens](../screens.md) has a true screen of each command that answers a question.

| it ends with | when |
| ---: | --- |
| 0 | it is done, and found nothing that a person must act on |
| 1 | it could not do it, or found something that a person must act on |
| 2 | wrong usage: an option or argument that there is not |
| 130 | Ctrl-C |
| 141 | who read its output went away |

Each command is there as a plugin of kubectl, too, such as `kubectl berth status`.
kubectl looks on PATH for `kubectl-berth`, which is installed beside `berth`.

Shells complete commands, options and their values:

- bash: `source <(berth completion bash)` in ~/.bashrc;
- zsh: `source <(berth completion zsh)` in ~/.zshrc, after `compinit`;
- fish: `berth completion fish | source` in ~/.config/fish/config.fish;
- kubectl's own completion asks `kubectl_complete-berth`, installed beside `berth`, for `kubectl berth`.
"""


def page() -> str:
    """Return the page for all commands."""
    return _HEAD + "".join(_command(name, parser) for name, parser in _commands(build_parser()))


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The commands of a parser by their names, each before those that it has itself."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for own in action.choices.values():
                yield own.prog, own
                yield from _commands(own)


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    shown = [
        action
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
        and action.help != argparse.SUPPRESS
    ]
    shown.sort(key=lambda action: bool(action.option_strings))  # stable: arguments, then options
    text = f"\n## {name}\n\n{sentences(parser.description or '')}\n"
    return text + ("\n" if shown else "") + "".join(item(_said(action, parser)) for action in shown)


def _said(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """An argument or option: how it is written, whether it is needed, what it means."""
    words = [f"`{_written(action)}`"]
    if action.required and action.option_strings:
        words.append("(required)")
    elif action.nargs in ("*", "?") and not action.option_strings:
        words.append("(optional)")
    meaning = _meaning(action, parser)
    return " ".join(words) + (f": {meaning}" if meaning else "")


def _written(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    value = "|".join(map(str, action.choices)) if action.choices else metavar
    if not action.option_strings:
        return f"{value} …" if action.nargs in ("*", "+") else value
    return ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {value}")


def _meaning(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    said = (action.help or "") % {**vars(action), "prog": parser.prog}
    if action.choices and action.default and "default" not in said:
        said = f"{said}; default {action.default}" if said else f"default {action.default}"
    return said
