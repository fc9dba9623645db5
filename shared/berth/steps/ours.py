"""The cluster and its ledger, for what decides: it does nothing in another cluster's ledger (decision 0007).
filter and prioritize, which decide nothing and know no cluster, open theirs themselves."""

from berth.cluster import Cluster, connect
from berth.ledger import Ledger
from berth.settings import Settings
from berth.stores import open_store, shown


def ledger_and_cluster(settings: Settings, *, while_closed: bool = False) -> tuple[Ledger, Cluster]:
    """`while_closed` as in Ledger. Raises SettingsError; nothing is opened yet."""
    store, cluster = open_store(settings.store), connect()
    name = shown(settings.store)
    return Ledger(store, while_closed=while_closed, cluster=cluster.identity, name=name), cluster
