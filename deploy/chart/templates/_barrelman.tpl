{{/* What the values of Barrelman's chart mean here: values of the mirror, as YAML. */}}
{{- define "portolan.barrelman" -}}
{{- with .Values.mirror.barrelman }}
{{- with .resync_period }}
resyncPeriod: {{ quote . }}
{{- end }}
{{- with .necWorkers }}
necWorkers: {{ int . }}
{{- end }}
{{- with .scWorkers }}
scWorkers: {{ int . }}
{{- end }}
{{- if .nodePortSvc }}
nodeportsvc: true
{{- end }}
{{- with .remote }}
{{- with .project }}
remoteProject: {{ quote . }}
{{- end }}
{{- with .zone }}
remoteZone: {{ quote . }}
{{- end }}
{{- with .cluster_name }}
remoteClusterName: {{ quote . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Environment variables for the values that no value of the mirror stands for. */}}
{{- define "portolan.barrelmanEnv" -}}
{{- with .Values.mirror.barrelman }}
{{- if gt (int .verbosity) 2 }}
- name: PORTOLAN_LOG_LEVEL
  value: {{ ternary "trace" "debug" (gt (int .verbosity) 4) }}
{{- end }}
{{- if .gce_service_account }}
- name: GOOGLE_APPLICATION_CREDENTIALS
  value: /etc/portolan/google/credentials.json
{{- end }}
{{- end }}
{{- end }}

{{/* The key in base64; it may be given as JSON, as YAML reads JSON, or in base64. */}}
{{- define "portolan.barrelmanKey" -}}
{{- $key := .Values.mirror.barrelman.gce_service_account }}
{{- if kindIs "map" $key }}
{{- toJson $key | b64enc }}
{{- else if hasPrefix "{" (trim $key) }}
{{- b64enc $key }}
{{- else }}
{{- regexReplaceAll "\\s" $key "" }}
{{- end }}
{{- end }}
