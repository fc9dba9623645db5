"""argparse with one thing more: what is no command, option or choice gets the nearest one as a guess.
Python does that itself from 3.14 on."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from berth.errors import did_you_mean


class Parser(argparse.ArgumentParser):
    """A parser whose errors offer the nearest name; its subparsers are of its kind."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = [str(choice) for choice in action.choices or ()]
        if choices and value not in (action.choices or ()):
            near = did_you_mean(str(value), choices)
            raise argparse.ArgumentError(
                action, f"{str(value)!r} should be one of {', '.join(choices)}{near}"
            )

    def error(self, message: str) -> NoReturn:
        more = f"; see {self.prog} --help" if "are required" in message else ""
        super().error(f"{message}{more}")

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """End with what is to be said of words that no option takes."""
        options = [option for action in self._actions for option in action.option_strings]
        guesses = [did_you_mean(word.partition("=")[0], options) for word in words if word.startswith("-")]
        self.error(f"unrecognized arguments: {' '.join(words)}{next(filter(None, guesses), '')}")
