"""What the demonstration is measured against: a counter of the kind that many schedulers keep.
It is complete, and as good as such counters get; only the way it counts is not Berth's."""
