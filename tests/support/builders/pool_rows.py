"""What `berth status -o json` says of a pool or a domain in which all is well."""

CALM = {
    "suspended": False,
    "lost": 0,
    "resting": 0,
    "kept": 0,
    "priorityOnly": 0,
    "heldInLine": 0,
    "firstInLine": "",
}
