{{- define "scopekv.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "scopekv.account" -}}
{{- .Values.serviceAccount.name | default (include "scopekv.name" .) -}}
{{- end }}

{{- define "scopekv.selector" -}}
app.kubernetes.io/name: scopekv
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "scopekv.labels" -}}
{{ include "scopekv.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "scopekv.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "scopekv.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* A key file is refused where others may read it, and a mounted Secret is read by its group. */}}
{{- define "scopekv.copyKeys" -}}
set -eu
umask 077
mkdir -p "$1"
for file in /mounted/*; do cp "$file" "$1/"; done
chmod 0600 "$1"/*
{{- end }}
