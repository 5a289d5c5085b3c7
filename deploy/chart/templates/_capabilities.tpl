{{- /* Written by `cargo xtask manifests`: changes made here are lost. */}}
{{- define "portolan.capabilities" -}}
{{- if ne (join "," .Values.capabilities) "egress,mesh" }}
- name: PORTOLAN_CAPABILITIES
  value: {{ join "," .Values.capabilities | quote }}
{{- end }}
{{- if not .Values.egress.ipv4 }}
- name: PORTOLAN_EGRESS_NO_IPV4
  value: "true"
{{- end }}
{{- if not .Values.egress.ipv6 }}
- name: PORTOLAN_EGRESS_NO_IPV6
  value: "true"
{{- end }}
{{- if and .Values.clusterDomain (ne .Values.clusterDomain "cluster.local") }}
- name: PORTOLAN_CLUSTER_DOMAIN
  value: {{ .Values.clusterDomain | quote }}
{{- end }}
{{- if and .Values.mesh.crossNamespace (ne .Values.mesh.crossNamespace "grant") }}
- name: PORTOLAN_MESH_CROSS_NAMESPACE
  value: {{ .Values.mesh.crossNamespace | quote }}
{{- end }}
{{- if .Values.mesh.denyEndpoint }}
- name: PORTOLAN_MESH_DENY_ENDPOINT
  value: {{ join "," .Values.mesh.denyEndpoint | quote }}
{{- end }}
{{- if not .Values.mesh.adoptLegacy }}
- name: PORTOLAN_MESH_ADOPT_LEGACY
  value: "false"
{{- end }}
{{- if and .Values.mesh.proxyTokenSecret (ne .Values.mesh.proxyTokenSecret "portolan-proxy") }}
- name: PORTOLAN_MESH_PROXY_TOKEN_SECRET
  value: {{ .Values.mesh.proxyTokenSecret | quote }}
{{- end }}
{{- end }}
