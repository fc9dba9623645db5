{{/* How the functions run: Knative or Deployments. */}}
{{- define "berth.runtime" -}}
{{- if ne .Values.runtime "Auto" }}{{ .Values.runtime }}
{{- else if and (.Capabilities.APIVersions.Has "serving.knative.dev/v1") (.Capabilities.APIVersions.Has "eventing.knative.dev/v1") }}Knative
{{- else }}Deployments{{ end }}
{{- end }}

{{/* "yes" where our pods get a label, by which sources select them. */}}
{{- define "berth.label" -}}
{{- if eq (include "berth.runtime" .) "Knative" }}
{{- if or (eq (toString .Values.events.label) "true") (and (eq (toString .Values.events.label) "Auto") (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")) }}yes{{ end }}
{{- end }}
{{- end }}

{{/* "yes" where Prometheus Operator is to scrape: without the Secret no function would start. */}}
{{- define "berth.monitoring" -}}
{{- if eq (toString .Values.monitoring) "true" }}yes
{{- else if eq (toString .Values.monitoring) "Auto" }}
{{- if and (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") (lookup "v1" "Secret" "berth" "berth-metrics") }}yes{{ end }}
{{- end }}
{{- end }}

{{- define "berth.image" -}}
{{- with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ end }}
{{- end }}

{{/* The components of infra that the values choose, in an order that kustomize takes too, as JSON. */}}
{{- define "berth.components" -}}
{{- $single := eq .Values.calls "Single" }}
{{- $knative := eq (include "berth.runtime" .) "Knative" }}
{{- $names := list (ternary "extender" "verbs" $single) }}
{{- if .Values.status }}{{ $names = append $names "status" }}{{ end }}
{{- if not $knative }}{{ $names = concat $names (list "deployments" (ternary "deployments-extender" "deployments-verbs" $single)) }}{{ end }}
{{- if and $knative .Values.events.broker }}{{ $names = append $names "broker" }}{{ end }}
{{- if include "berth.label" . }}{{ $names = append $names "label" }}{{ end }}
{{- $names = append $names (ternary "store-secret" "configmap" (eq .Values.store.kind "Secret")) }}
{{- if .Values.scheduler.https }}{{ $names = append $names "https" }}{{ end }}
{{- if .Values.events.oidc }}{{ $names = append $names "events-oidc" }}{{ end }}
{{- if .Values.sharedToken }}{{ $names = append $names "shared-token" }}{{ end }}
{{- if .Values.nativePreemption }}{{ $names = append $names "native" }}{{ end }}
{{- if include "berth.monitoring" . }}{{ $names = append $names "monitoring" }}{{ end }}
{{- if ne .Values.size "Medium" }}{{ $names = append $names (printf "size-%s" (lower .Values.size)) }}{{ end }}
{{- toJson $names }}
{{- end }}

{{/* What can't be, as an error that says what to do. */}}
{{- define "berth.refuse" -}}
{{- if ne .Release.Namespace "berth" }}
{{- fail "Berth is installed in the namespace berth, which its policies and accounts name: add --namespace berth --create-namespace" }}
{{- end }}
{{- if and (eq .Values.calls "Single") (not .Values.scheduler.resources) }}
{{- fail "calls: Single needs scheduler.resources: what your Pools are asked for by, such as [berth.dev/underlay-ip]" }}
{{- end }}
{{- if and (eq .Values.calls "PerVerb") .Values.scheduler.resources }}
{{- fail "scheduler.resources is for calls: Single; with calls: PerVerb all pods of these schedulers are asked about: take it out" }}
{{- end }}
{{- if and .Values.scheduler.https (or (eq .Values.calls "Single") (eq (include "berth.runtime" .) "Deployments")) }}
{{- fail "scheduler.https is for runtime: Knative with calls: PerVerb, whose certificates Knative makes: set it to false" }}
{{- end }}
{{- if and .Values.events.oidc (ne (include "berth.runtime" .) "Knative") }}
{{- fail "events.oidc is for runtime: Knative, whose Eventing sends the tokens: set it to false" }}
{{- end }}
{{- if and (eq .Values.size "Large") (ne .Values.store.kind "Secret") }}
{{- fail "size: Large needs store.kind: Secret: ConfigMaps hold no ledger of that size (docs/capacity-planning.md)" }}
{{- end }}
{{- $there := list "release" "inventory" "reconcile" "status" }}
{{- $there = concat $there (ternary (list "extender") (list "filter" "prioritize" "preempt" "bind") (eq .Values.calls "Single")) }}
{{- range $name, $own := .Values.functions }}
{{- if not (has $name $there) }}
{{- fail (printf "functions.%s: with calls: %s there is no such function, but %s" $name $.Values.calls (join ", " $there)) }}
{{- end }}
{{- if and $own.least $own.most }}{{ if gt (int $own.least) (int $own.most) }}
{{- fail (printf "functions.%s: least is %d, and should be %d (most) or less" $name (int $own.least) (int $own.most)) }}
{{- end }}{{ end }}
{{- end }}
{{- if and .Values.store.readers (ne .Values.store.kind "Secret") }}
{{- fail "store.readers is for store.kind: Secret: set it to false" }}
{{- end }}
{{- end }}
