"""bind that meets a faulty API server (KUBECONFIG_OF_BIND) and can be killed at a step.
The step is the text of the file FAULTS/die, which goes with the process: each order kills once.
"""

import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from berth.handlers import bind as verb
from berth.http.function import serve
from berth.kube.cluster import Cluster
from berth.ledger.ledger import Ledger

DIE = Path(os.environ["FAULTS"]) / "die"
os.environ["KUBECONFIG"] = os.environ["KUBECONFIG_OF_BIND"]


def die_at(step: str) -> None:
    if DIE.exists() and DIE.read_text() == step:
        DIE.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def deadly(owner: type, method: str, before: str, after: str) -> None:
    real: Callable[..., Any] = getattr(owner, method)

    @functools.wraps(real)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        die_at(before)
        result = real(*arguments, **options)
        die_at(after)
        return result

    mock.patch.object(owner, method, wrapped).start()


deadly(Ledger, "reserve", "before reserve", "after reserve")
deadly(Cluster, "bind", "before Binding", "after Binding")
deadly(Ledger, "confirm", "before confirm", "after confirm")
deadly(Cluster, "set_condition", "before fence", "after fence")
bind = serve(verb.endpoint)
