"""What `changes` of every store promises of the epoch, by which readers know that a ledger may be trusted.
What single stores do for it: test_dynamodb_feed.py, test_configmap_slow.py."""

import threading
from contextlib import closing

from berth.stores import open_store
from berth.stores.base import EPOCH
from tests.support.builders.places import Place

KEYS = [f"domain/p/{i}" for i in range(4)]
LAST = 12


def test_who_is_told_of_a_new_epoch_is_told_of_all_that_was_committed_before_it(place: Place) -> None:
    """While both are written: each epoch after the documents that bear its number."""
    with closing(open_store(place.url)) as writer, closing(open_store(place.url)) as reader:
        known, cursor, late = dict[str, int](), reader.changes(None).cursor, list[dict[str, int]]()

        def write() -> None:
            for number in range(1, LAST + 1):
                for key in KEYS:
                    assert writer.commit({key: b"%d" % number}, {})
                assert writer.commit({EPOCH: b"%d" % number}, {})

        thread = threading.Thread(target=write)
        thread.start()
        while thread.is_alive():
            found = reader.changes(cursor)
            known |= {key: int(body) for key, body in found.documents.items() if body is not None}
            cursor = found.cursor
            if any(known.get(key, 0) < known.get(EPOCH, 0) for key in KEYS):
                late.append(dict(known))
        thread.join()
        assert late == []
        assert reader.read([EPOCH])[EPOCH].body == b"%d" % LAST
