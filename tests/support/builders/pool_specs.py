"""Specs of Pools, right and wrong, for Berth's own reading and for the API server's by infra's CRD.
They are kept in one place so that both take and refuse the same."""

from typing import Any

Spec = dict[str, Any]

CAPACITY: Spec = {"capacity": {"perDomain": 3}}
TOPOLOGY: Spec = {"scope": "Topology", "topologyKey": "topology.kubernetes.io/zone"}
CLUSTER: Spec = {"scope": "Cluster"}
READ: Spec = {**CLUSTER, **CAPACITY, "externalFrom": {"feature": "MATLAB"}}
ISSUED: Spec = {**CLUSTER, "externalFrom": {"feature": "MATLAB", "capacity": "Issued"}}
NAMED: Spec = {"units": {"node-1": ["k80-0", "k80-1"]}}

USER = "poller:hush"
URL_FORM = "http://HOST/PATH or https://HOST/PATH, without a user or password"

RIGHT_SPECS: list[Spec] = [
    CAPACITY,
    {**CAPACITY, "units": {}, "nodeNames": {}, "limits": {}, "external": 0},
    {**CAPACITY, **TOPOLOGY},
    {**TOPOLOGY, "topologyKey": "rack", "capacity": {"domains": {"R_1.b": 4}}, "suspended": ["R_1.b"]},
    {**TOPOLOGY, "units": {"zone-a": ["10.0.3.0/28", "fd00::/64"], "zone-b": ["10.0.4.7"]}},
    {**CLUSTER, "capacity": {"domains": {"*": 10_000}}, "external": 3, "suspended": ["*"]},
    {**CLUSTER, "units": {"*": ["seat-1", "seat-2"]}, "adoptFrom": "example.com/seat", "suspended": True},
    {**NAMED, "reuseAfterSeconds": 2_678_400, "onLostNode": "Release", "suspended": False},
    {**CAPACITY, "score": "Names", "nodeNames": {"node-1": 10, "gpu-*": 0}, "releaseOn": "Deleted"},
    {**CAPACITY, "score": "None", "releaseOn": "Finished", "onLostNode": "Hold", "suspended": ["node-7"]},
    {**CAPACITY, "preemption": "Native", "limits": {"team-a": 4, "*": 0}},
    {**CAPACITY, "preemption": "Native", "resource": "native.berth.dev/ip"},
    {**CAPACITY, "preemption": "None", "sticky": {"by": "Pod", "forSeconds": 600}},
    {**CAPACITY, "sticky": {"by": "Owner", "forSeconds": 0}},
    {**CAPACITY, "reserved": {"priorityAtLeast": -5, "units": 2}},
    {**NAMED, "claimableBy": {"team-a": ["k80-0", "10.0.3.0/28", "fd00::1-fd00::9"], "*": []}},
    {**NAMED, "claimableBy": {}},
    {**CLUSTER, "units": {"*": ["10.0.3.0/24"]}, "exclude": ["10.0.3.1", "10.0.3.64/26", "fd00::/64", "a"]},
    {**NAMED, "exclude": []},
    {
        **NAMED,
        "annotations": {"cni.example/ip": '["{unit}"]', "plain": "{units} {units:json} {domain} {pool}"},
    },
    {**NAMED, "annotations": {"k8s.v1.cni.cncf.io/networks": '[{"name":"macvlan","ips":["{unit}/24"]}]'}},
    {**NAMED, "annotations": {"ipam.example/ip_address": "{unit}"}, "onAnnotated": "Refuse"},
    {**CAPACITY, **TOPOLOGY, "annotations": {"example.com/rack": "{domain}"}, "onAnnotated": "Overwrite"},
    {**CAPACITY, "annotations": {}},
    {**NAMED, "annotations": {f"{'a' * 253}/{'b' * 63}": "{unit}"}},
    {**CAPACITY, "line": {"holds": "None"}},
    {**CAPACITY, "line": {"holds": "FirstInLine", "holdAfterSeconds": 0, "whileHeldSeconds": 2_678_400}},
    {**CAPACITY, "line": {"idleSeconds": 2_678_400}},
    {**CAPACITY, "gangSeconds": 3600},
    {**CAPACITY, "line": {}},
    READ,
    {**READ, "external": 0},
    ISSUED,
    {**ISSUED, "units": {}, "reserved": {"priorityAtLeast": 5, "units": 2}},
    {**CLUSTER, "units": {"*": ["seat-1"]}, "externalFrom": {"feature": "M", "capacity": "Pool"}},
    {
        **READ,
        "externalFrom": {
            "feature": "MATLAB",
            "url": "http://[fd00::1]:9319/metrics?a=b%20c",
            "format": "prometheus",
            "match": "user",
            "everySeconds": 30,
            "staleAfterSeconds": 31,
            "whenStale": "Ignore",
        },
    },
    {**READ, "externalFrom": {"feature": "MATLAB", "url": "https://licences.example"}},
]

# What is wrong, what Berth says, and what of that the API server says, or its own words.
WRONG_SPECS: list[tuple[Spec, str, str]] = [
    (spec, said, said)
    for spec, said in [
        ({}, "spec needs capacity or units"),
        ({"units": {}}, "spec needs capacity or units"),
        (
            {**CAPACITY, **NAMED},
            "spec has capacity and units; with units the capacity follows from the lists: remove capacity",
        ),
        (
            {**CAPACITY, "scope": "Topology"},
            "spec.scope: Topology needs topologyKey, the key of a node's label",
        ),
        ({**CAPACITY, "topologyKey": "rack"}, "spec.topologyKey goes with scope Topology only"),
        (
            {**CAPACITY, **TOPOLOGY, "topologyKey": "Upper.example/zone"},
            "spec.topologyKey should be a label's key, such as topology.kubernetes.io/zone",
        ),
        (
            {**CAPACITY, **TOPOLOGY, "topologyKey": ""},
            "spec.topologyKey should be a label's key, such as topology.kubernetes.io/zone",
        ),
        (
            {**CLUSTER, "capacity": {"nodeAnnotation": "ips"}},
            "spec.capacity.nodeAnnotation goes with scope Node only",
        ),
        ({**CAPACITY, "score": "Names"}, "spec.score: Names needs nodeNames"),
        ({**CAPACITY, "nodeNames": {"n1": 1}}, "spec.nodeNames goes with score Names only"),
        (
            {**CAPACITY, **TOPOLOGY, "preemption": "Native"},
            "spec.preemption: Native goes with scope Node only",
        ),
        (
            {**CAPACITY, "preemption": "Native", "resource": "berth.dev/ip"},
            "spec.resource should be native.berth.dev/NAME with preemption Native",
        ),
        (
            {**CAPACITY, "resource": "native.berth.dev/ip"},
            "spec.resource: the group native.berth.dev goes with preemption Native only",
        ),
        ({**CAPACITY, **TOPOLOGY, "external": 1}, "spec.external goes with scope Cluster only"),
        ({**CAPACITY, "adoptFrom": "ip"}, "spec.adoptFrom goes with units only"),
        ({**CAPACITY, "exclude": []}, "spec.exclude goes with units only"),
        ({**CAPACITY, "claimableBy": {"*": ["k80-0"]}}, "spec.claimableBy goes with units only"),
        (
            {**NAMED, "adoptFrom": "a b"},
            "spec.adoptFrom should be an annotation's key, such as example.com/ip",
        ),
        (
            {**CAPACITY, **TOPOLOGY, "topologyKey": f"{'a' * 254}/zone"},
            "spec.topologyKey should be a label's key, such as topology.kubernetes.io/zone",
        ),
        (
            {**NAMED, "adoptFrom": f"{'a' * 254}/ip"},
            "spec.adoptFrom should be an annotation's key, such as example.com/ip",
        ),
        ({**NAMED, "onAnnotated": "Refuse"}, "spec.onAnnotated goes with annotations only"),
        ({**READ, "scope": "Node"}, "spec.externalFrom goes with scope Cluster only"),
        (
            {**READ, "external": 1},
            "spec has external and externalFrom; what others use is then read: remove external",
        ),
        (
            {**ISSUED, **CAPACITY},
            "spec.externalFrom.capacity: Issued goes without capacity and units: remove them",
        ),
        (
            {**ISSUED, "units": {"*": ["seat-1"]}},
            "spec.externalFrom.capacity: Issued goes without capacity and units: remove them",
        ),
        *(
            (
                {**READ, "externalFrom": {"feature": "MATLAB", **seconds}},
                "spec.externalFrom.staleAfterSeconds should be more than everySeconds",
            )
            for seconds in ({"everySeconds": 180}, {"staleAfterSeconds": 60}, {"staleAfterSeconds": 7})
        ),
        *(
            (
                {**READ, "externalFrom": {"feature": "MATLAB", "url": url}},
                f"spec.externalFrom.url should be {URL_FORM}",
            )
            for url in (
                "",
                "ftp://host/x",
                "http://",
                f"http://{USER}@host/x",
                "http://host/a b",
                "http://h#x",
            )
        ),
    ]
] + [
    (
        {**NAMED, "annotations": {"a b": "{unit}"}},
        "spec.annotations: 'a b' should be an annotation's key, such as example.com/ip",
        "spec.annotations: each key should be an annotation's key, such as example.com/ip",
    ),
    (
        {**NAMED, "annotations": {f"{'a' * 254}/ip": "{unit}"}},
        "should be an annotation's key, such as example.com/ip",
        "spec.annotations: each key should be an annotation's key, such as example.com/ip",
    ),
    (
        {**NAMED, "annotations": {"x.berth.dev/ip": "{unit}"}},
        "spec.annotations: 'x.berth.dev/ip' is of berth.dev or of Kubernetes, which alone write there",
        "spec.annotations: a key is of berth.dev or of Kubernetes, which alone write there",
    ),
    (
        {**NAMED, "annotations": {"ovn.kubernetes.io/ip_address": "{unit}"}},
        "'ovn.kubernetes.io/ip_address' is of berth.dev or of Kubernetes, which alone write there",
        "spec.annotations: a key is of berth.dev or of Kubernetes, which alone write there",
    ),
    (
        {**NAMED, "annotations": {"kubernetes.io/ip": "{unit}"}},
        "spec.annotations: 'kubernetes.io/ip' is of berth.dev or of Kubernetes, which alone write there",
        "spec.annotations: a key is of berth.dev or of Kubernetes, which alone write there",
    ),
    (
        {**NAMED, "annotations": {"example.com/ip": "{ip} {unit}"}},
        "spec.annotations: 'example.com/ip': {ip} means nothing: write {unit}, {units}",
        "spec.annotations: what stands in braces means nothing: write {unit}, {units}, {units:json}",
    ),
    (
        {**NAMED, "annotations": {"example.com/ip": "{units:yaml}"}},
        "spec.annotations: 'example.com/ip': {units:yaml} means nothing: write {unit}",
        "spec.annotations: what stands in braces means nothing: write {unit}, {units}, {units:json}",
    ),
    (
        {**CAPACITY, "annotations": {"example.com/ip": "{units:json}"}},
        "spec.annotations: 'example.com/ip': {unit}, {units}, {units:json} go with units only",
        "spec.annotations: {unit}, {units}, {units:json} go with units only",
    ),
    (
        {**CLUSTER, "capacity": {"perDomain": 1}, "annotations": {"example.com/at": "{domain}"}},
        "spec.annotations: 'example.com/at': {domain} means nothing in scope Cluster, which has one domain",
        "spec.annotations: {domain} means nothing in scope Cluster, which has one domain",
    ),
    (
        {**NAMED, "annotations": {"example.com/ip": ""}},
        "spec.annotations: 'example.com/ip': a text has 1 to 1024 characters",
        "spec.annotations.example.com/ip",
    ),
    (
        {**NAMED, "annotations": {f"example.com/{number}": "{unit}" for number in range(17)}},
        "spec.annotations has 17 keys, and 16 is the most",
        "spec.annotations: Too many: 17: must have at most 16 items",
    ),
    (
        {**NAMED, "annotations": {"example.com/ip": "{unit}"}, "onAnnotated": "Ignore"},
        "spec.onAnnotated 'Ignore' should be one of Overwrite, Refuse",
        'supported values: "Overwrite", "Refuse"',
    ),
    (
        {**CAPACITY, "line": {"holds": "Youngest"}},
        "spec.line.holds 'Youngest' should be one of FirstInLine, None",
        'supported values: "FirstInLine", "None"',
    ),
    (
        {**CAPACITY, "line": {"idleSeconds": 0}},
        "spec.line.idleSeconds 0 should be a number from 1 to 2678400",
        "spec.line.idleSeconds in body should be greater than or equal to 1",
    ),
    (
        {**CAPACITY, "line": {"whileHeldSeconds": 0}},
        "spec.line.whileHeldSeconds 0 should be a number from 1 to 2678400",
        "spec.line.whileHeldSeconds in body should be greater than or equal to 1",
    ),
    (
        {**CAPACITY, "gangSeconds": 9},
        "spec.gangSeconds 9 should be a number from 10 to 3600",
        "spec.gangSeconds in body should be greater than or equal to 10",
    ),
    (
        {**CLUSTER, "capacity": {"domains": {"node-1": 3}}},
        "spec.capacity.domains: domain 'node-1' should be *, the one domain of scope Cluster",
        "spec.capacity.domains: each should be the name of a node, the value of a label, or *,",
    ),
    (
        {**CLUSTER, **NAMED},
        "spec.units: domain 'node-1' should be *, the one domain of scope Cluster",
        "spec.units: each domain should be the name of a node, the value of a label, or *,",
    ),
    (
        {**TOPOLOGY, "units": {"zone#1": ["a"]}},
        "spec.units: domain 'zone#1' should be the value of a label",
        "spec.units: each domain should be the name of a node, the value of a label, or *,",
    ),
    (
        {"capacity": {"domains": {"*": 3}}},
        "spec.capacity.domains: domain '*' should be the name of a node",
        "spec.capacity.domains: each should be the name of a node, the value of a label, or *,",
    ),
    (
        {**CAPACITY, "score": "Names", "nodeNames": {"gpu-*": 11}},
        "spec.nodeNames: gpu-*: 11 is not a score from 0 to 10",
        "less than or equal to 10",
    ),
    (
        {**CAPACITY, "score": "Names", "nodeNames": {"gpu-*": -1}},
        "spec.nodeNames: gpu-*: -1 is not a score from 0 to 10",
        "greater than or equal to 0",
    ),
    (
        {**CAPACITY, "limits": {"team-a": -1}},
        "spec.limits: team-a: -1 is not a number of units from 0 to 2147483647",
        "greater than or equal to 0",
    ),
    (
        {**CAPACITY, "limits": {"Team A": 1}},
        "spec.limits: 'Team A' should be the name of a namespace, or *",
        "spec.limits: each should be the name of a namespace, or *",
    ),
    (
        {**NAMED, "claimableBy": {"Team A": ["k80-0"]}},
        "spec.claimableBy: 'Team A' should be the name of a namespace, or *",
        "spec.claimableBy: each should be the name of a namespace, or *",
    ),
    (
        {**NAMED, "claimableBy": {"team-a": ["k80-0", "k80-0"]}},
        "spec.claimableBy: team-a: k80-0 is listed twice",
        "Duplicate value",
    ),
    (
        {**CAPACITY, "external": -1},
        "spec.external -1 should be a number from 0 to 2147483647",
        "greater than or equal to 0",
    ),
    (
        {**CAPACITY, "reserved": {"priorityAtLeast": 1000, "units": 0}},
        "spec.reserved.units 0 should be a number from 1 to 2147483647",
        "greater than or equal to 1",
    ),
    (
        {**CAPACITY, "reserved": {"units": 1}},
        "spec.reserved.priorityAtLeast is missing: it should be a number from -2147483648 to",
        "spec.reserved.priorityAtLeast: Required value",
    ),
    (
        {**CAPACITY, "reuseAfterSeconds": 2_678_401},
        "spec.reuseAfterSeconds 2678401 should be a number from 0 to 2678400",
        "less than or equal to 2678400",
    ),
    (
        {**CAPACITY, "sticky": {"by": "Node", "forSeconds": 1}},
        "spec.sticky.by 'Node' should be one of Pod, Owner",
        'supported values: "Pod", "Owner"',
    ),
    (
        {**CAPACITY, "sticky": {"by": "Pod", "forSeconds": -1}},
        "spec.sticky.forSeconds -1 should be a number from 0 to 2678400",
        "greater than or equal to 0",
    ),
    (
        {**CAPACITY, "releaseOn": "Never"},
        "spec.releaseOn 'Never' should be one of Finished, Deleted",
        'supported values: "Finished", "Deleted"',
    ),
    (
        {**CAPACITY, "onLostNode": "Evict"},
        "spec.onLostNode 'Evict' should be one of Release, Hold",
        'supported values: "Release", "Hold"',
    ),
    (
        {**CAPACITY, "preemption": "Always"},
        "spec.preemption 'Always' should be one of None, Native",
        'supported values: "None", "Native"',
    ),
    (
        {**CAPACITY, "suspended": "yes"},
        "spec.suspended must be true or false or a list, not the text 'yes': write true",
        "spec.suspended",
    ),
    (
        {**CAPACITY, "suspended": 1},
        "spec.suspended must be true or false or a list, not 1",
        "spec.suspended",
    ),
    (
        {**CAPACITY, "suspended": {}},
        "spec.suspended must be true or false or a list, not an object",
        "spec.suspended",
    ),
    ({"units": {"n1": ["k80-0", "k80-0"]}}, "spec.units: n1: k80-0 is listed twice", "Duplicate value"),
]

# What only Berth refuses: the API server can't tell.
WRONG_FOR_BERTH: list[tuple[Spec, str]] = [
    (
        {"capacity": {"domains": {"Node_1": 3}}},
        "spec.capacity.domains: domain 'Node_1' should be the name of a node",
    ),
    ({**CAPACITY, "suspended": ["a/b"]}, "spec.suspended: domain 'a/b' should be the name of a node"),
    (
        {**CLUSTER, **CAPACITY, "suspended": ["n1"]},
        "spec.suspended: domain 'n1' should be *, the one domain of scope Cluster",
    ),
    (
        {"units": {"n1": ["10.0.3.1/28"]}},
        "spec.units: n1: 10.0.3.1/28 has host bits set: write 10.0.3.0/28",
    ),
    ({**NAMED, "exclude": ["10.0.3.1/28"]}, "spec.exclude: 10.0.3.1/28 has host bits set: write 10.0.3.0/28"),
    ({**NAMED, "exclude": ["a", "a "]}, "spec.exclude: "),
    (
        {**NAMED, "claimableBy": {"team-a": ["10.0.3.1/28"]}},
        "spec.claimableBy: team-a: 10.0.3.1/28 has host bits set: write 10.0.3.0/28",
    ),
    (
        {**TOPOLOGY, "units": {"zone-a": ["10.0.3.0/28"], "zone-c": ["x"], "zone-b": ["10.0.3.5"]}},
        "spec.units: unit 10.0.3.5 is in domains zone-a and zone-b",
    ),
    (
        {"units": {f"n{number}": [f"k80-{number % 4_999}"] for number in range(5_000)}},
        "spec.units: unit k80-0 is in domains n0 and n4999",
    ),
]
