"""What a release consists of, made from one commit: the same bytes each time (docs/release.md)."""
