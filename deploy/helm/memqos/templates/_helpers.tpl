{{- define "memqos.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "memqos.selector" -}}
app.kubernetes.io/name: memqos
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- /* Labels of an object: (list root component), component may be empty. */}}
{{- define "memqos.labels" -}}
{{- $root := index . 0 }}{{ $component := index . 1 -}}
app.kubernetes.io/name: memqos
{{- with $component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The agent's configuration file. */}}
{{- define "memqos.configuration" -}}
{{- $given := dict "apiVersion" "memqos.io/v1alpha1" "kind" "AgentConfiguration" "mode" .Values.mode }}
{{- if and (eq .Values.mode "enforce") .Values.canary }}
{{- $_ := set $given "canary" .Values.canary }}
{{- end }}
{{- $config := merge $given (deepCopy .Values.config) }}
{{- /* The agent leaves its own namespace alone, whatever its name. */}}
{{- with dig "select" "notNamespaces" nil $config }}
{{- $_ := set $config.select "notNamespaces" (append . $.Release.Namespace | uniq) }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- /* Where the cgroups of pods are. */}}
{{- define "memqos.kubepods" -}}
/sys/fs/cgroup/{{ .Values.cgroups.kubepods | trimPrefix "/" | default (eq .Values.cgroups.driver "systemd" | ternary "kubepods.slice" "kubepods") }}
{{- end }}
