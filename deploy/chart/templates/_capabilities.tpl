{{- /* Written by `cargo xtask manifests`: changes made here are lost. */}}
{{- define "portolan.capabilities" -}}
{{- if ne (join "," .Values.capabilities) "egress,gateway,ipam,mesh,mirror" }}
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
{{- if and .Values.gateway.envoyRuntime (ne .Values.gateway.envoyRuntime "auto") }}
- name: PORTOLAN_GATEWAY_ENVOY_RUNTIME
  value: {{ .Values.gateway.envoyRuntime | quote }}
{{- end }}
{{- if and .Values.gateway.envoyImage (ne .Values.gateway.envoyImage "") }}
- name: PORTOLAN_GATEWAY_ENVOY_IMAGE
  value: {{ .Values.gateway.envoyImage | quote }}
{{- end }}
{{- if .Values.gateway.envoyImageAllow }}
- name: PORTOLAN_GATEWAY_ENVOY_IMAGE_ALLOW
  value: {{ join "," .Values.gateway.envoyImageAllow | quote }}
{{- end }}
{{- if and .Values.gateway.xdsAddress (ne .Values.gateway.xdsAddress "") }}
- name: PORTOLAN_GATEWAY_XDS_ADDRESS
  value: {{ .Values.gateway.xdsAddress | quote }}
{{- end }}
{{- if .Values.gateway.multus }}
- name: PORTOLAN_GATEWAY_MULTUS
  value: "true"
{{- end }}
{{- if and .Values.gateway.drain (ne .Values.gateway.drain "10s") }}
- name: PORTOLAN_GATEWAY_DRAIN
  value: {{ .Values.gateway.drain | quote }}
{{- end }}
{{- if and .Values.gateway.addressQuarantine (ne .Values.gateway.addressQuarantine "1m") }}
- name: PORTOLAN_GATEWAY_ADDRESS_QUARANTINE
  value: {{ .Values.gateway.addressQuarantine | quote }}
{{- end }}
{{- if and .Values.gateway.keyQuarantine (ne .Values.gateway.keyQuarantine "1h") }}
- name: PORTOLAN_GATEWAY_KEY_QUARANTINE
  value: {{ .Values.gateway.keyQuarantine | quote }}
{{- end }}
{{- if .Values.gateway.endpointDeny }}
- name: PORTOLAN_GATEWAY_ENDPOINT_DENY
  value: {{ join "," .Values.gateway.endpointDeny | quote }}
{{- end }}
{{- if .Values.gateway.directAllow }}
- name: PORTOLAN_GATEWAY_DIRECT_ALLOW
  value: {{ join "," .Values.gateway.directAllow | quote }}
{{- end }}
{{- if ne (toString .Values.gateway.maxLoadBalancers) "256" }}
- name: PORTOLAN_GATEWAY_MAX_LOAD_BALANCERS
  value: {{ toString .Values.gateway.maxLoadBalancers | quote }}
{{- end }}
{{- if ne (toString .Values.gateway.maxAddresses) "256" }}
- name: PORTOLAN_GATEWAY_MAX_ADDRESSES
  value: {{ toString .Values.gateway.maxAddresses | quote }}
{{- end }}
{{- if ne (toString .Values.gateway.maxEndpoints) "1000" }}
- name: PORTOLAN_GATEWAY_MAX_ENDPOINTS
  value: {{ toString .Values.gateway.maxEndpoints | quote }}
{{- end }}
{{- if ne (toString .Values.gateway.restWatches) "100" }}
- name: PORTOLAN_GATEWAY_REST_WATCHES
  value: {{ toString .Values.gateway.restWatches | quote }}
{{- end }}
{{- if ne (toString .Values.gateway.restRate) "50" }}
- name: PORTOLAN_GATEWAY_REST_RATE
  value: {{ toString .Values.gateway.restRate | quote }}
{{- end }}
{{- if and .Values.gatewayClient.url (ne .Values.gatewayClient.url "") }}
- name: PORTOLAN_GATEWAY_CLIENT_URL
  value: {{ .Values.gatewayClient.url | quote }}
{{- end }}
{{- if and .Values.gatewayClient.secret (ne .Values.gatewayClient.secret "portolan-gateway-client") }}
- name: PORTOLAN_GATEWAY_CLIENT_SECRET
  value: {{ .Values.gatewayClient.secret | quote }}
{{- end }}
{{- if and .Values.gatewayClient.clusterId (ne .Values.gatewayClient.clusterId "") }}
- name: PORTOLAN_GATEWAY_CLIENT_CLUSTER_ID
  value: {{ .Values.gatewayClient.clusterId | quote }}
{{- end }}
{{- if and .Values.gatewayClient.verifyInterval (ne .Values.gatewayClient.verifyInterval "30s") }}
- name: PORTOLAN_GATEWAY_CLIENT_VERIFY_INTERVAL
  value: {{ .Values.gatewayClient.verifyInterval | quote }}
{{- end }}
{{- if and .Values.ipam.nodeSelector (ne .Values.ipam.nodeSelector "node-role.kubernetes.io/worker") }}
- name: PORTOLAN_IPAM_NODE_SELECTOR
  value: {{ .Values.ipam.nodeSelector | quote }}
{{- end }}
{{- if and .Values.ipam.backend (ne .Values.ipam.backend "auto") }}
- name: PORTOLAN_IPAM_BACKEND
  value: {{ .Values.ipam.backend | quote }}
{{- end }}
{{- if and .Values.ipam.nodeGrace (ne .Values.ipam.nodeGrace "30s") }}
- name: PORTOLAN_IPAM_NODE_GRACE
  value: {{ .Values.ipam.nodeGrace | quote }}
{{- end }}
{{- if and .Values.ipam.partial (ne .Values.ipam.partial "refuse") }}
- name: PORTOLAN_IPAM_PARTIAL
  value: {{ .Values.ipam.partial | quote }}
{{- end }}
{{- if and .Values.ipam.verifyInterval (ne .Values.ipam.verifyInterval "1m") }}
- name: PORTOLAN_IPAM_VERIFY_INTERVAL
  value: {{ .Values.ipam.verifyInterval | quote }}
{{- end }}
{{- if and .Values.ipam.clusterTag (ne .Values.ipam.clusterTag "") }}
- name: PORTOLAN_IPAM_CLUSTER_TAG
  value: {{ .Values.ipam.clusterTag | quote }}
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
{{- if and .Values.mirror.remoteProject (ne .Values.mirror.remoteProject "") }}
- name: PORTOLAN_MIRROR_REMOTE_PROJECT
  value: {{ .Values.mirror.remoteProject | quote }}
{{- end }}
{{- if and .Values.mirror.remoteZone (ne .Values.mirror.remoteZone "europe-west1-c") }}
- name: PORTOLAN_MIRROR_REMOTE_ZONE
  value: {{ .Values.mirror.remoteZone | quote }}
{{- end }}
{{- if and .Values.mirror.remoteClusterName (ne .Values.mirror.remoteClusterName "") }}
- name: PORTOLAN_MIRROR_REMOTE_CLUSTER_NAME
  value: {{ .Values.mirror.remoteClusterName | quote }}
{{- end }}
{{- if and .Values.mirror.remoteContext (ne .Values.mirror.remoteContext "") }}
- name: PORTOLAN_MIRROR_REMOTE_CONTEXT
  value: {{ .Values.mirror.remoteContext | quote }}
{{- end }}
{{- if and .Values.mirror.remoteName (ne .Values.mirror.remoteName "barrelman") }}
- name: PORTOLAN_MIRROR_REMOTE_NAME
  value: {{ .Values.mirror.remoteName | quote }}
{{- end }}
{{- if .Values.mirror.remoteAddressCidr }}
- name: PORTOLAN_MIRROR_REMOTE_ADDRESS_CIDR
  value: {{ join "," .Values.mirror.remoteAddressCidr | quote }}
{{- end }}
{{- if .Values.mirror.nodeportsvc }}
- name: PORTOLAN_MIRROR_NODEPORTSVC
  value: "true"
{{- end }}
{{- if .Values.mirror.ignoreNamespace }}
- name: PORTOLAN_MIRROR_IGNORE_NAMESPACE
  value: {{ join "," .Values.mirror.ignoreNamespace | quote }}
{{- end }}
{{- if .Values.mirror.writeEndpoints }}
- name: PORTOLAN_MIRROR_WRITE_ENDPOINTS
  value: "true"
{{- end }}
{{- if and .Values.mirror.approveDeletions (ne .Values.mirror.approveDeletions "") }}
- name: PORTOLAN_MIRROR_APPROVE_DELETIONS
  value: {{ .Values.mirror.approveDeletions | quote }}
{{- end }}
{{- if and .Values.mirror.resyncPeriod (ne .Values.mirror.resyncPeriod "2h") }}
- name: PORTOLAN_MIRROR_RESYNC_PERIOD
  value: {{ .Values.mirror.resyncPeriod | quote }}
{{- end }}
{{- if ne (toString .Values.mirror.necWorkers) "4" }}
- name: PORTOLAN_MIRROR_NEC_WORKERS
  value: {{ toString .Values.mirror.necWorkers | quote }}
{{- end }}
{{- if ne (toString .Values.mirror.scWorkers) "2" }}
- name: PORTOLAN_MIRROR_SC_WORKERS
  value: {{ toString .Values.mirror.scWorkers | quote }}
{{- end }}
{{- if ne (toString .Values.mirror.writeQps) "200" }}
- name: PORTOLAN_MIRROR_WRITE_QPS
  value: {{ toString .Values.mirror.writeQps | quote }}
{{- end }}
{{- if ne (toString .Values.mirror.sliceSize) "100" }}
- name: PORTOLAN_MIRROR_SLICE_SIZE
  value: {{ toString .Values.mirror.sliceSize | quote }}
{{- end }}
{{- if and .Values.mirror.clusterId (ne .Values.mirror.clusterId "") }}
- name: PORTOLAN_MIRROR_CLUSTER_ID
  value: {{ .Values.mirror.clusterId | quote }}
{{- end }}
{{- if .Values.mirror.localCidr }}
- name: PORTOLAN_MIRROR_LOCAL_CIDR
  value: {{ join "," .Values.mirror.localCidr | quote }}
{{- end }}
{{- if and .Values.mirror.gcpContainerEndpoint (ne .Values.mirror.gcpContainerEndpoint "https://container.googleapis.com") }}
- name: PORTOLAN_MIRROR_GCP_CONTAINER_ENDPOINT
  value: {{ .Values.mirror.gcpContainerEndpoint | quote }}
{{- end }}
{{- if .Values.mirror.gcpTokenHost }}
- name: PORTOLAN_MIRROR_GCP_TOKEN_HOST
  value: {{ join "," .Values.mirror.gcpTokenHost | quote }}
{{- end }}
{{- if and .Values.mirror.googleMetadataHost (ne .Values.mirror.googleMetadataHost "metadata.google.internal") }}
- name: GCE_METADATA_HOST
  value: {{ .Values.mirror.googleMetadataHost | quote }}
{{- end }}
{{- if .Values.mirror.allowLoopbackRemotes }}
- name: PORTOLAN_MIRROR_ALLOW_LOOPBACK_REMOTES
  value: "true"
{{- end }}
{{- end }}
