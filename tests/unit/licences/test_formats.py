"""Licence servers' texts, in our own writing by the vendors' documented forms, and what is read in them."""

import pytest

from berth.errors import BadInputError
from berth.licences.checkouts import LARGEST, Checkout, Feature
from berth.licences.formats import read

LMSTAT = """lmstat - Copyright (c) 1989-2024 Flexera. All Rights Reserved.
Flexible License Manager status on Wed 11/25/2026 14:40

License server status: 27000@licserver
    License file(s) on licserver: /opt/flexlm/licenses/site.lic:

 licserver: license server UP (MASTER) v11.19.5

Vendor daemon status (on licserver):

       MLM: UP v11.19.5

Feature usage info:

Users of MATLAB:  (Total of 10 licenses issued;  Total of 6 licenses in use)

  "MATLAB" v50, vendor: MLM, expiry: 01-jan-2027
  vendor_string: vi=30:at=187
  floating license

    alice desk-1 desk-1:0.0 (v47) (licserver/27000 201), start Wed 11/25 9:30
    bob berth-pod-1 /dev/pts/0 (v47) (licserver/27000 301), start Wed 11/25 9:31, 2 licenses
    Carol de Vries WIN-7 WIN-7 (v47) (licserver/27000 401), start Wed 11/25 9:32
    dave desk-2.example.com (v47) (licserver/27000 501), start Wed 11/25 9:33 (linger: 120 / 3600)
      1 RESERVATION for GROUP night (licserver/27000)
    erin desk-3 :0 (v47) (licserver/27000 601) queued for 1 license
    frank desk-4 :0 (v47) (licserver/27000 701) queued for 2 licenses

Users of Simulink:  (Total of 1 license issued;  Total of 0 licenses in use)

Users of Node_Locked:  (Uncounted, node-locked)

Users of Broken:  (Error: 10 licenses, unsupported by licensed server)

    ghost nowhere :0 (v47) (licserver/27000 801), start Wed 11/25 9:34
"""
RLMSTAT = """rlmstat v15.2
Copyright (C) 2006-2026, Reprise Software, Inc. All rights reserved.

rlm status on licserver (port 5053), up 4d 05:12:00

        foundry ISV server status on licserver (port 62503), up 4d 05:12:00

        foundry license pool status on licserver (port 62503)

        nuke_i v2026.0101
                count: 8, # reservations: 1, inuse: 4, exp: 31-dec-2026
                obsolete: 0, min_remove: 120, total checkouts: 27
        nuke_i v2027.0101, pool: 2
                count: 2, # reservations: 0, inuse: 0, exp: permanent
                obsolete: 0, min_remove: 120, total checkouts: 0
        katana v1.0
                UNCOUNTED
        hiero_i v2026.0101 some words
                count: 1, # reservations: 0, inuse: 0, exp: permanent
                obsolete: 0, min_remove: 120, total checkouts: 0

        foundry license usage status on licserver (port 62503)

        nuke_i v15.0: fred@desk-1 1/0 at 11/25 10:10  (handle: 81)
        nuke_i v15.0: render@berth-pod-2 2/0 at 11/25 10:11  (handle: c1)
"""
JSON = """{"features": [
  {"name": "seat", "issued": 5, "reserved": 1,
   "checkouts": [{"host": "desk-1"}, {"host": "pod-1", "count": 2}]},
  {"name": "seat", "issued": 1}
]}"""


def test_lmstat_has_checkouts_reservations_and_those_that_queue() -> None:
    assert read(LMSTAT.encode(), "lmstat", "MATLAB") == Feature(
        "MATLAB",
        issued=10,
        in_use=6,
        reserved=1,
        queued=3,
        checkouts=(
            Checkout("alice", "desk-1", "desk-1:0.0", 1),
            Checkout("bob", "berth-pod-1", "/dev/pts/0", 2),
            Checkout("Carol", "de", "Vries", 1, "WIN-7"),
            Checkout("dave", "desk-2.example.com", "", 1),
        ),
    )
    assert read(LMSTAT.encode(), "lmstat", "Simulink") == Feature("Simulink", issued=1)


def test_a_feature_of_several_servers_is_summed() -> None:
    other = LMSTAT.replace("27000@licserver", "27000@other")
    found = read((LMSTAT + other).encode(), "lmstat", "MATLAB")
    assert (found.issued, found.in_use, found.reserved, found.queued) == (20, 12, 2, 6)
    assert len(found.checkouts) == 8


def test_a_line_of_four_words_may_have_a_user_of_two_or_a_vendors_own_word() -> None:
    head = "Users of F:  (Total of 2 licenses issued;  Total of 2 licenses in use)\n"
    line = "    ada lab-1 lab-1:0.0 lc80a28 (v2022.09) (s/27020 24464), start Mon 9/5 8:37\n"
    (found,) = read((head + line).encode(), "lmstat", "F").checkouts
    assert found == Checkout("ada", "lab-1", "lab-1:0.0", 1, "lab-1:0.0")


def test_rlmstat_has_pools_of_one_product_and_its_checkouts() -> None:
    assert read(RLMSTAT.encode(), "rlmstat", "nuke_i") == Feature(
        "nuke_i",
        issued=10,
        in_use=5,
        reserved=1,
        checkouts=(Checkout("fred", "desk-1", "", 1), Checkout("render", "berth-pod-2", "", 2)),
    )


METRICS = """# HELP flexlm_feature_issued Number of issued licenses.
# TYPE flexlm_feature_issued gauge
flexlm_feature_issued{app="a",name="MATLAB"} 1.0e+01
flexlm_feature_issued{app="b",name="MATLAB"} 2
flexlm_feature_used{app="a",name="MATLAB"} 4
flexlm_feature_used_users{app="a",name="MATLAB",user="pod-1",version="(v1)"} 2
flexlm_feature_used_users{app="a",name="MATLAB",user="J. \\"X\\" {Y}",version="(v1)"} 1 1732545600000
flexlm_feature_expiration_seconds{app="a",name="MATLAB"} +Inf
flexlm_feature_issued{app="a",name="Odd"} NaN
"""


def test_metrics_of_flexlm_exporter_have_users() -> None:
    assert read(METRICS.encode(), "prometheus", "MATLAB") == Feature(
        "MATLAB",
        issued=12,
        in_use=4,
        checkouts=(Checkout("pod-1", "", "", 2), Checkout('J. \\"X\\" {Y}', "", "", 1)),
    )


def test_json_is_for_everything_else() -> None:
    assert read(JSON.encode(), "json", "seat") == Feature(
        "seat",
        issued=6,
        in_use=4,
        reserved=1,
        checkouts=(Checkout("", "desk-1", "", 1), Checkout("", "pod-1", "", 2)),
    )


@pytest.mark.parametrize(
    ("body", "form", "feature", "words"),
    [
        (LMSTAT.encode(), "lmstat", "MATLAP", "of the feature MATLAP; it counts: MATLAB, Simulink"),
        (LMSTAT.encode(), "lmstat", "Node_Locked", "counts no licences of the feature Node_Locked"),
        (LMSTAT.encode(), "lmstat", "Broken", "counts no licences of the feature Broken"),
        (
            RLMSTAT.encode(),
            "lmstat",
            "nuke_i",
            "it counts: none (is the server, or",
        ),
        (LMSTAT.encode(), "rlmstat", "MATLAB", "it counts: none"),
        (RLMSTAT.encode(), "rlmstat", "katana", "of the feature katana; it counts: nuke_i ("),
        ((LMSTAT * 2).encode(), "lmstat", "MATLAB", "the text has the same server twice: 27000@licserver"),
        (
            (RLMSTAT * 2).encode(),
            "rlmstat",
            "nuke_i",
            "server twice: foundry license pool status on",
        ),
        (LMSTAT.replace("of 10 ", f"of {'9' * 5_000} ").encode(), "lmstat", "MATLAB", "it counts: Simulink"),
        (METRICS.encode(), "prometheus", "Odd", "of the feature Odd; it counts: MATLAB"),
        ((METRICS * 2).encode(), "prometheus", "MATLAB", "twice: issued{app="),
        (
            b'flexlm_feature_issued{name="X"} 1.2.3',
            "prometheus",
            "X",
            "no number of licences: flexlm_feature",
        ),
        (b"", "lmstat", "MATLAB", "it counts: none"),
        (b"Error getting status: Cannot connect (-15,570)", "lmstat", "MATLAB", "it counts: none"),
        (b"\x00\xff" * 1000, "lmstat", "MATLAB", "it counts: none"),
        (b"\x00\xff" * 1000, "rlmstat", "MATLAB", "it counts: none"),
        (b"{", "json", "seat", "not licences as JSON: Input data was truncated"),
        (b'{"features": [{"name": "seat", "issued": -1}]}', "json", "seat", "not licences as JSON: Expected"),
        (
            b'{"features": [], "more": 1}',
            "json",
            "seat",
            "not licences as JSON: Object contains",
        ),
        (b"x" * (LARGEST + 1), "lmstat", "MATLAB", "the text has over 64 MiB"),
    ],
    ids=range(20),
)
def test_what_can_not_be_read_is_an_error_and_never_no_use(
    body: bytes, form: str, feature: str, words: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        read(body, form, feature)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
