"""The cluster and its ledger, for what decides: it does nothing in another cluster's ledger (decision 0007).
filter and prioritize, which decide nothing and know no cluster, open theirs themselves."""

from berth.kube.cluster import Cluster, connect
from berth.ledger.ledger import Ledger
from berth.settings import Settings
from berth.stores import open_store, shown
from berth.stores.base import Store


def ledger_and_cluster(settings: Settings, *, while_closed: bool = False) -> tuple[Ledger, Cluster]:
    """`while_closed` as in Ledger. Raises SettingsError; nothing is opened yet."""
    store, cluster = open_store(settings.store), connect()
    return ledger_of(cluster, settings, store, while_closed=while_closed), cluster


def ledger_of(cluster: Cluster, settings: Settings, store: Store, *, while_closed: bool) -> Ledger:
    """The ledger in a store that is open already."""
    name = shown(settings.store)
    return Ledger(store, while_closed=while_closed, cluster=cluster.identity, name=name)
