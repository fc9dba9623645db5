// Prometheus Operator, for its CustomResourceDefinitions alone: nothing of it is compiled.
module monitoring/operator

go 1.24

require github.com/prometheus-operator/prometheus-operator v0.85.0
