{{- define "recollect.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-recollect" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "recollect.account" -}}
{{ .Values.serviceAccount.name | default (include "recollect.name" .) }}
{{- end }}

{{/* Labels of all that the chart makes; with `component`, those that select its pods. */}}
{{- define "recollect.selector" -}}
app.kubernetes.io/name: recollect
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "recollect.labels" -}}
{{ include "recollect.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* What takes events, what answers: (name, readiness) of each Deployment of the API. */}}
{{- define "recollect.apis" -}}
{{- if .Values.api.split }}
ingest: /health/ready/ingest
read: /health/ready/read
{{- else }}
api: /health/ready/ingest
{{- end }}
{{- end }}

{{/* Environment of all processes. What `settings` says comes last and once. */}}
{{- define "recollect.environment" -}}
{{- $given := dict
  "RECOLLECT_REDIS_URL" .Values.redis.url
  "RECOLLECT_NEO4J_URL" .Values.neo4j.url
  "RECOLLECT_NEO4J_USER" .Values.neo4j.user
  "RECOLLECT_PARTITIONS" .Values.partitions
  "RECOLLECT_DATA_DIR" "/tmp/recollect"
  "RECOLLECT_SECRETS_DIR" "/etc/recollect/secrets"
  "RECOLLECT_LOG_FORMAT" "json" }}
{{- with .Values.derivations.url }}{{ $_ := set $given "RECOLLECT_DERIVATIONS_URL" . }}{{ end }}
{{- with .Values.archive.url }}{{ $_ := set $given "RECOLLECT_ARCHIVE_URL" . }}{{ end }}
{{- if .Values.sealing.claim }}{{ $_ := set $given "RECOLLECT_KEYS_FILE" "/keys/keys.sqlite" }}{{ end }}
{{- merge (deepCopy .Values.settings) $given | toYaml }}
{{- end }}

{{- define "recollect.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Whether pods may be spread, where, and what they may do: of every pod. */}}
{{- define "recollect.pod" -}}
serviceAccountName: {{ include "recollect.account" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: tmp
    emptyDir: {sizeLimit: {{ .root.Values.scratch }}}
  - name: secrets
    secret:
      secretName: {{ .root.Values.existingSecret }}
      defaultMode: 0440
{{- with .secretItems }}
      items: {{ toYaml . | nindent 8 }}
      optional: true
{{- end }}
{{- with .root.Values.archive.claim }}
  - name: archive
    persistentVolumeClaim: {claimName: {{ . }}}
{{- end }}
{{- with .root.Values.sealing.claim }}
  - name: keys
    persistentVolumeClaim: {claimName: {{ . }}}
{{- end }}
{{- end }}

{{/* One container of our image: args, environment beside that of all and without what, ports, resources. */}}
{{- define "recollect.container" -}}
{{- $environment := merge (deepCopy (.environment | default dict)) (include "recollect.environment" .root | fromYaml) }}
{{- range .without }}{{ $_ := unset $environment . }}{{ end -}}
name: recollect
image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- with .command }}
command: {{ toJson . }}
{{- end }}
args: {{ toJson .args }}
env:
{{- range $name, $value := $environment }}
  - name: {{ $name }}
    value: {{ if kindIs "string" $value }}{{ $value | quote }}{{ else }}{{ $value | toJson | quote }}{{ end }}
{{- end }}
securityContext: {{ include "recollect.security" . | nindent 2 }}
resources: {{ toYaml .resources | nindent 2 }}
{{- with .ports }}
ports: {{ toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: secrets, mountPath: /etc/recollect/secrets, readOnly: true}
{{- if .root.Values.archive.claim }}
  - {name: archive, mountPath: /archive}
{{- end }}
{{- if .root.Values.sealing.claim }}
  - {name: keys, mountPath: /keys}
{{- end }}
{{- end }}

{{- define "recollect.spread" -}}
topologySpreadConstraints:
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "recollect.selector" $ | nindent 8 }}
{{- end }}
{{- end }}

{{/* At most one pod of a component is taken away at a time; a single one may be. */}}
{{- define "recollect.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels: {{ include "recollect.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{ include "recollect.selector" . | nindent 6 }}
{{- end }}
