"""Claims: which pod holds which units of which pool, in a store that several processes share.

The state of a pod's claim, and the calls of `Ledger` that change it:

        ┌─────────────────────────── adopt ──────────────────────────┐
        │                                                            ▼
      (none) ───── reserve ─────► reserved ── confirm, adopt ─────► bound ───── release ─────► (none)
        ▲                         │ ▲  │                             │
        │                         │ └──┘ reserve                     │ release(hold, "lost")
        ├──── cancel, release ────┘                                  ▼
        └───────────────────────── release ──────────────────────── lost

    reserve   bind: all units or none. A newer attempt for the same node takes the reservation over.
              For a gang: of all its pods or none. The others' are seats, which their own binds take.
    confirm   bind, after the Binding was made.
    cancel    bind and reconcile, once no Binding can land any more; only the newest attempt's.
    adopt     reconcile, inventory, bind: the pod runs there, room or not. External use is adopted, too.
    release   release, reconcile, inventory, bind and `berth release`: the pod is gone or has finished.
              `hold` names pools whose units stay held: as "lost" while the node may still use them
              (`onLostNode: Hold`), as "bound" until the pod is deleted (`releaseOn: Deleted`).

The states are those of `Claim.state` in ledger/model. The ledger asks no API server: whether a pod runs, can
still be bound, or is gone is for its callers to know.
"""
