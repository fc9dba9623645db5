// What tests/monitoring checks infra/components/monitoring by: Grafana's schema, and Prometheus Operator's kinds.
module monitoring/schema

go 1.24

require github.com/grafana/grafana-foundation-sdk/go v0.0.22
