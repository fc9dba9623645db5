{{/* The manifests of infra/base and infra/components are this chart's own: it reads them and their kustomizations as they
are, and changes in them what the values say. tests/chart compares the outcome with kustomize's. */}}

{{/* Print all objects. As in kustomize, a component's patches reach what is named before it, and itself. */}}
{{- define "berth.objects" -}}
{{- $root := . }}
{{- $patches := list }}
{{- $printed := list }}
{{- range reverse (prepend (include "berth.components" . | fromJsonArray) "base") }}
{{- $folder := ternary "base" (printf "components/%s" .) (eq . "base") }}
{{- $kustomization := include "berth.file" (dict "root" $root "name" (printf "%s/kustomization.yaml" $folder)) | fromYaml }}
{{- $patches = concat ($kustomization.patches | default list) $patches }}
{{- $texts := list }}
{{- range $kustomization.resources }}
{{- $file := include "berth.file" (dict "root" $root "name" (printf "%s/%s" $folder .)) }}
{{- $texts = append $texts (include "berth.file.objects" (dict "root" $root "text" $file "patches" $patches)) }}
{{- end }}
{{- $printed = concat $texts $printed }}
{{- end }}
{{- join "" $printed }}
{{- end }}

{{- define "berth.file" -}}
{{- $text := .root.Files.Get .name }}
{{- if not $text }}{{ fail (printf "the chart has no file %s" .name) }}{{ end }}
{{- $text }}
{{- end }}

{{- define "berth.file.objects" }}
{{- $root := .root }}
{{- $patches := .patches }}
{{- range regexSplit "(?m)^---\\n" .text -1 }}
{{- $object := fromYaml . }}
{{- if hasKey $object "Error" }}{{ fail $object.Error }}{{ end }}
{{- if and (hasKey $object "kind") (include "berth.wanted" (dict "root" $root "object" $object)) }}
{{- range $patches }}
{{- if include "berth.targeted" (dict "target" .target "object" $object) }}
{{- if hasPrefix "- " .patch }}
{{- range fromYamlArray .patch }}{{ include "berth.patched" (dict "object" $object "step" .) }}{{ end }}
{{- else if contains "$patch: delete" .patch }}{{ $_ := set $object "kind" "" }}
{{- else }}{{ fail (printf "the chart does not know this patch of kustomize: %s" .patch) }}{{ end }}
{{- end }}
{{- end }}
{{- if $object.kind }}
{{- include (printf "berth.change.%s" (include "berth.kind" $object)) (dict "root" $root "object" $object) }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* "yes" where a patch's target is this object. */}}
{{- define "berth.targeted" -}}
{{- $meta := .object.metadata }}
{{- $group := regexReplaceAll "/?v[0-9a-z]+$" .object.apiVersion "" }}
{{- $other := or (and .target.group (ne .target.group $group)) (and .target.kind (ne .target.kind .object.kind)) }}
{{- if and .target.name (not (regexMatch (printf "^(%s)$" .target.name) $meta.name)) }}{{ $other = true }}{{ end }}
{{- with .target.labelSelector }}
{{- $parts := splitList "=" (replace "!=" "=" .) }}
{{- $is := eq (get ($meta.labels | default dict) (first $parts)) (last $parts) }}
{{- if eq $is (contains "!=" .) }}{{ $other = true }}{{ end }}
{{- end }}
{{- if not $other }}yes{{ end }}
{{- end }}

{{/* One step of a JSON patch: `add` and `replace`, of a field, or at the end of a list. */}}
{{- define "berth.patched" }}
{{- if not (has .step.op (list "add" "replace")) }}{{ fail (printf "the chart does not know the step %s of a patch" .step.op) }}{{ end }}
{{- $names := rest (splitList "/" .step.path) }}
{{- $at := .object }}
{{- $owner := dict }}
{{- $owned := "" }}
{{- range initial $names }}
{{- $name := . | replace "~1" "/" | replace "~0" "~" }}
{{- if kindIs "slice" $at }}{{ $at = index $at (int $name) }}
{{- else if not (hasKey $at $name) }}{{ fail (printf "%s %s has no %s, which a patch names" $.object.kind $.object.metadata.name $.step.path) }}
{{- else }}{{ $owner = $at }}{{ $owned = $name }}{{ $at = get $at $name }}{{ end }}
{{- end }}
{{- $last := last $names | replace "~1" "/" | replace "~0" "~" }}
{{- if kindIs "slice" $at }}
{{- if ne $last "-" }}{{ fail (printf "the chart adds at the end of lists alone, not at %s" .step.path) }}{{ end }}
{{- $_ := set $owner $owned (append $at (deepCopy .step.value)) }}
{{- else }}{{ $_ := set $at $last (deepCopy .step.value) }}{{ end }}
{{- end }}

{{/* "yes" for what the values do not leave out. helm itself makes the namespace. */}}
{{- define "berth.wanted" -}}
{{- if eq (printf "%s/%s" .object.kind .object.metadata.name) "Namespace/berth" }}
{{- else if and (eq .object.kind "NetworkPolicy") (not .root.Values.networkPolicies) }}
{{- else if and (eq .object.kind "CustomResourceDefinition") (not .root.Values.crds.install) }}
{{- else if and (eq .object.metadata.name "status") (not .root.Values.status) }}
{{- else }}yes{{ end }}
{{- end }}

{{/* Which change an object takes. */}}
{{- define "berth.kind" -}}
{{- if hasPrefix "serving.knative.dev/" .apiVersion }}function
{{- else if eq .kind "Deployment" }}{{ if eq .metadata.name "berth-scheduler" }}scheduler{{ else if eq .metadata.name "berth-relay" }}relay{{ else }}function{{ end }}
{{- else if has .kind (list "ServiceAccount" "HorizontalPodAutoscaler" "CustomResourceDefinition" "Namespace" "ConfigMap") }}{{ .kind }}
{{- else if has .kind (list "ValidatingAdmissionPolicy" "MutatingAdmissionPolicy") }}policy
{{- else }}nothing{{ end }}
{{- end }}

{{- define "berth.change.nothing" }}{{ end }}

{{/* A function: its image, which key says where its ledger is, and what `functions` says of it. */}}
{{- define "berth.change.function" }}
{{- $values := .root.Values }}
{{- $name := .object.metadata.name }}
{{- $own := get $values.functions $name | default dict }}
{{- $template := .object.spec.template }}
{{- $container := first $template.spec.containers }}
{{- if and $values.store.readers (has $name (list "filter" "prioritize" "preempt" "status")) }}
{{- range $container.env }}{{ if eq .name "BERTH_STORE" }}{{ $_ := set .valueFrom.secretKeyRef "key" "readers-url" }}{{ end }}{{ end }}
{{- end }}
{{- $_ := set $container "image" (include "berth.image" .root) }}
{{- if $own.resources }}{{ $_ := set $container "resources" (mergeOverwrite $container.resources $own.resources) }}{{ end }}
{{- if eq .object.kind "Service" }}
{{- with $own.least }}{{ $_ := set $template.metadata.annotations "autoscaling.knative.dev/min-scale" (toString .) }}{{ end }}
{{- with $own.most }}{{ $_ := set $template.metadata.annotations "autoscaling.knative.dev/max-scale" (toString .) }}{{ end }}
{{- end }}
{{- end }}

{{- define "berth.change.HorizontalPodAutoscaler" }}
{{- $own := get .root.Values.functions .object.metadata.name | default dict }}
{{- with $own.least }}{{ $_ := set $.object.spec "minReplicas" . }}{{ end }}
{{- with $own.most }}{{ $_ := set $.object.spec "maxReplicas" . }}{{ end }}
{{- end }}

{{- define "berth.change.relay" }}
{{- $_ := set (first .object.spec.template.spec.containers) "image" (include "berth.image" .root) }}
{{- end }}

{{- define "berth.change.ServiceAccount" }}
{{- if .root.Values.imagePullSecrets }}
{{- $secrets := list }}
{{- range .root.Values.imagePullSecrets }}{{ $secrets = append $secrets (dict "name" .) }}{{ end }}
{{- $_ := set .object "imagePullSecrets" $secrets }}
{{- end }}
{{- end }}

{{/* The scheduler's pods are replaced when their configuration has changed. */}}
{{- define "berth.change.scheduler" }}
{{- $spec := .object.spec.template.spec }}
{{- with .root.Values.scheduler.replicas }}{{ $_ := set $.object.spec "replicas" (int .) }}{{ end }}
{{- $_ := set (first $spec.initContainers) "image" .root.Values.scheduler.proxyImage }}
{{- $_ := set (first $spec.containers) "image" (include "berth.scheduler.image" .root) }}
{{- $sum := printf "%s%s" (include "berth.scheduler.configuration" .root) (include "berth.scheduler.proxy" .root) | sha256sum }}
{{- $_ := set .object.spec.template.metadata "annotations" (dict "berth.dev/configuration" (trunc 16 $sum)) }}
{{- end }}

{{/* Settings: what operators set, and whose pods are ours. */}}
{{- define "berth.change.ConfigMap" }}
{{- $data := mergeOverwrite .object.data (dict "BERTH_SCHEDULER_NAMES" (join "," .root.Values.scheduler.names)) }}
{{- range $name, $value := .root.Values.settings }}{{ $_ := set $data $name (toString $value) }}{{ end }}
{{- end }}

{{/* The names of our schedulers stand between the first two quotes of a variable. */}}
{{- define "berth.change.policy" }}
{{- range .object.spec.variables }}
{{- if eq .name "schedulers" }}
{{- $_ := set . "expression" (regexReplaceAll "^('?)[^']*'" .expression (printf "'%s'" (join "," $.root.Values.scheduler.names))) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "berth.change.CustomResourceDefinition" }}{{ include "berth.keep" . }}{{ end }}
{{- define "berth.change.Namespace" }}{{ include "berth.keep" . }}{{ end }}
{{- define "berth.keep" }}
{{- if .root.Values.crds.keep }}
{{- $_ := set .object.metadata "annotations" (merge (dict "helm.sh/resource-policy" "keep") (.object.metadata.annotations | default dict)) }}
{{- end }}
{{- end }}
