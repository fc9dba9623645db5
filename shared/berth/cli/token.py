"""`berth token`: the token that kube-scheduler and the verbs share, as a Secret made once and by chance.
It never shows the token, and needs no right but to create Secrets in that namespace."""

import argparse
import secrets

from berth.cli.shared_options import add_kubeconfig
from berth.errors import ClusterRefusedError, SettingsError
from berth.kube.cluster import connect

_BYTES = 32


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("secret", metavar="NAMESPACE/NAME", help="the Secret to make, with the key `token`")
    add_kubeconfig(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    namespace, _, name = options.secret.partition("/")
    if not namespace or not name or "/" in name:
        raise SettingsError(f"the Secret {options.secret!r} should be NAMESPACE/NAME, such as berth/token")
    document = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": {"token": secrets.token_urlsafe(_BYTES)},
    }
    try:
        connect().create(f"/api/v1/namespaces/{namespace}/secrets", document)
    except ClusterRefusedError as error:
        if error.status != 409:
            raise
        print(f"Secret {options.secret} is there already, and stays as it is")
    else:
        print(f"Secret {options.secret} made")
    return 0
