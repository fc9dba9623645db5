{{/* kube-scheduler of the cluster's own version, without what a vendor adds to it (-gke.1, -eks-1a, +k3s1). */}}
{{- define "berth.scheduler.image" -}}
{{- with .Values.scheduler }}{{ .image }}{{ if not (contains "@" .image) }}:{{ .version | default (regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" $.Capabilities.KubeVersion.Version) }}{{ end }}{{ end }}
{{- end }}

{{/* kube-scheduler's configuration: a profile for each name, and with one URL what is asked for by pods of ours. */}}
{{- define "berth.scheduler.configuration" -}}
{{- $component := ternary "extender" "verbs" (eq .Values.calls "Single") }}
{{- $configuration := .Files.Get (printf "components/%s/scheduler.yaml" $component) | fromYaml }}
{{- $profiles := list }}
{{- range .Values.scheduler.names }}{{ $profiles = append $profiles (mergeOverwrite (deepCopy (first $configuration.profiles)) (dict "schedulerName" .)) }}{{ end }}
{{- $_ := set $configuration "profiles" $profiles }}
{{- if eq .Values.calls "Single" }}
{{- $managed := list }}
{{- range .Values.scheduler.resources }}{{ $managed = append $managed (dict "name" . "ignoredByScheduler" true) }}{{ end }}
{{- $_ := set (first $configuration.extenders) "managedResources" $managed }}
{{- end }}
{{- toYaml $configuration }}
{{- end }}

{{- define "berth.scheduler.proxy" -}}
{{- .Files.Get (printf "components/%s/haproxy.cfg" (ternary "extender" (ternary "https" "verbs" .Values.scheduler.https) (eq .Values.calls "Single"))) }}
{{- end }}
