{{/* The image of chatlane. */}}
{{- define "chatlane.image" -}}
{{- with .Values.image -}}
{{- if .tag }}{{ .repository }}:{{ .tag }}{{ else }}{{ .repository }}@{{ required "image.digest or image.tag is missing" .digest }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The ConfigMap of chatlane.toml: another text has another name, so pods are replaced. */}}
{{- define "chatlane.configuration" -}}
chatlane-configuration-{{ .Values.configuration | sha256sum | trunc 10 }}
{{- end -}}

{{/*
Print the objects of a file of deploy/kubernetes as this release has them.
Takes a dict: root, and path of the file below files/.
*/}}
{{- define "chatlane.file" -}}
{{- $root := .root }}
{{- range $text := splitList "\n---\n" ($root.Files.Get .path | replace "runbook_url: " (print "runbook_url: " $root.Values.runbooks)) }}
{{- $object := fromYaml $text }}
{{- if and (hasKey $object "kind") (ne $object.kind "Namespace") }}
---
{{ include "chatlane.object" (dict "root" $root "object" $object) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Print an object with namespace, labels, image, Secrets and hooks of this release. */}}
{{- define "chatlane.object" -}}
{{- $root := .root }}
{{- $object := .object }}
{{- $name := $object.metadata.name }}
{{- $_ := set $object.metadata "namespace" $root.Release.Namespace }}
{{- $labels := dict "app.kubernetes.io/part-of" "chatlane" "app.kubernetes.io/managed-by" $root.Release.Service "app.kubernetes.io/instance" $root.Release.Name }}
{{- $_ := set $object.metadata "labels" (merge $labels (default dict $object.metadata.labels)) }}
{{- if $object.metadata.labels.release }}
{{- $_ := set $object.metadata "labels" (merge (dict) $root.Values.monitoringLabels (omit $object.metadata.labels "release")) }}
{{- end }}
{{- if eq $object.kind "Job" }}
{{- $weight := ternary "0" "10" (eq $name "chatlane-migrate") }}
{{- $_ := set $object.metadata "annotations" (dict "helm.sh/hook" "pre-install,pre-upgrade" "helm.sh/hook-weight" $weight "helm.sh/hook-delete-policy" "before-hook-creation") }}
{{- end }}
{{- /* What the jobs need, before them. */}}
{{- if or (eq $name "chatlane-admin") (has $object.kind (list "ExternalSecret" "Certificate")) }}
{{- $_ := set $object.metadata "annotations" (dict "helm.sh/hook" "pre-install,pre-upgrade" "helm.sh/hook-weight" "-10" "helm.sh/hook-delete-policy" "before-hook-creation") }}
{{- end }}
{{- if eq $object.kind "CronJob" }}
{{- $_ := set $object.spec.jobTemplate.metadata.labels "app.kubernetes.io/part-of" "chatlane" }}
{{- include "chatlane.pod" (dict "root" $root "template" $object.spec.jobTemplate.spec.template) }}
{{- else if has $object.kind (list "Job" "Deployment") }}
{{- include "chatlane.pod" (dict "root" $root "template" $object.spec.template) }}
{{- end }}
{{- if and (eq $object.kind "Deployment") (eq $name "chatlane-router") }}
{{- $size := index (include "chatlane.sizes" $root | fromYaml) $root.Values.size }}
{{- if eq $root.Values.autoscaling "none" }}
{{- $_ := set $object.spec "replicas" $size.routers }}
{{- else }}
{{- include "chatlane.scaled" (dict "root" $root "object" $object) }}
{{- end }}
{{- $_ := set (index $object.spec.template.spec.containers 0) "resources" $size.resources }}
{{- end }}
{{- if and (eq $name "chatlane-router") (hasKey (default dict $object.spec) "minReplicas") }}
{{- $_ := set $object.spec "minReplicas" (index (include "chatlane.sizes" $root | fromYaml) $root.Values.size).routers }}
{{- end }}
{{- if and (eq $name "chatlane-router") (hasKey (default dict $object.spec) "minReplicaCount") }}
{{- $least := (index (include "chatlane.sizes" $root | fromYaml) $root.Values.size).routers }}
{{- $_ := set $object.spec "minReplicaCount" $least }}
{{- $_ := set $object.spec.fallback "replicas" $least }}
{{- end }}
{{- toYaml $object }}
{{- end -}}

{{/*
Leave the number of pods of a Deployment to its autoscaler. Takes a dict: root, object.

A number that leaves the manifest becomes 1 until the autoscaler acts. So the present number is
rendered after a release that had one. With server-side apply that is until the autoscaler changes
the number, which then is no longer Helm's. Otherwise it is always, because Helm compares with the
manifest of the release before. Helm's entry has the selector; others may have applied single fields.
*/}}
{{- define "chatlane.scaled" -}}
{{- $_ := unset .object.spec "replicas" }}
{{- $live := lookup "apps/v1" "Deployment" .root.Release.Namespace .object.metadata.name }}
{{- if $live }}
{{- $isApplied := false }}
{{- $isOurs := false }}
{{- range default list $live.metadata.managedFields }}
{{- $fields := dig "fieldsV1" "f:spec" dict . }}
{{- if and (eq .operation "Apply") (hasKey $fields "f:selector") }}
{{- $isApplied = true }}
{{- if hasKey $fields "f:replicas" }}{{- $isOurs = true }}{{- end }}
{{- end }}
{{- end }}
{{- if or $isOurs (not $isApplied) }}
{{- $_ := set .object.spec "replicas" (int $live.spec.replicas) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Change the template of a pod: labels, image, names of Secrets and of the ConfigMap. */}}
{{- define "chatlane.pod" -}}
{{- $root := .root }}
{{- $template := .template }}
{{- $_ := set $template.metadata.labels "app.kubernetes.io/part-of" "chatlane" }}
{{- range concat (default list $template.spec.initContainers) $template.spec.containers }}
{{- if eq .image "chatlane" }}{{- $_ := set . "image" (include "chatlane.image" $root) }}{{- end }}
{{- end }}
{{- range $template.spec.volumes }}
{{- if hasKey . "configMap" }}
{{- $_ := set .configMap "name" (include "chatlane.configuration" $root) }}
{{- end }}
{{- if hasKey . "projected" }}
{{- range .projected.sources }}
{{- $_ := set .secret "name" (default .secret.name (index $root.Values.secrets .secret.name)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Routers and what each may use; its memory limit is twice router.buffer_bytes and more. */}}
{{- define "chatlane.sizes" -}}
small: {routers: 2, resources: {requests: {cpu: 250m, memory: 256Mi}, limits: {cpu: "1", memory: 512Mi}}}
medium: {routers: 3, resources: {requests: {cpu: "1", memory: 256Mi}, limits: {cpu: "2", memory: 512Mi}}}
large: {routers: 4, resources: {requests: {cpu: "2", memory: 512Mi}, limits: {cpu: "2", memory: 1Gi}}}
{{- end -}}

{{/* What examples/chat_adapter.py reads. */}}
{{- define "chatlane.adapterEnv" -}}
- {name: {{ .prefix }}PLATFORM, value: {{ splitList "/" .client.account | first }}}
- {name: {{ .prefix }}ACCOUNT, value: {{ splitList "/" .client.account | last | quote }}}
{{- if .client.registration }}
- {name: {{ .prefix }}PRINCIPAL, value: "{{ .client.name }}-{account}"}
- {name: {{ .prefix }}NKEY_SEED_FILE, value: "/run/secrets/chatlane/{account}.nk"}
- {name: {{ .prefix }}REGISTRATION, value: /run/secrets/chatlane/registration.yaml}
{{- else }}
- {name: {{ .prefix }}PRINCIPAL, value: {{ .client.name }}}
- {name: {{ .prefix }}NKEY_SEED_FILE, value: /run/secrets/chatlane/nats.nk}
{{- end }}
- {name: {{ .prefix }}TLS_CA_FILE, value: /run/secrets/chatlane/nats-ca.crt}
{{- if .prefix }}
- {name: {{ .prefix }}SECRETS_DIR, value: /run/secrets/chatlane}
- {name: {{ .prefix }}HEALTH_HOST, value: 0.0.0.0}
- {name: {{ .prefix }}HEALTH_PORT, value: "8080"}
{{- with .client.port }}
{{- $listen := default "LISTEN" (get (dict "telegram" "WEBHOOK" "mail" "LMTP") (splitList "/" $.client.account | first)) }}
- {name: {{ $.prefix }}{{ $listen }}_HOST, value: 0.0.0.0}
- {name: {{ $.prefix }}{{ $listen }}_PORT, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- end -}}

{{/* What a program of `frontEnds` listens on, and where its settings are. */}}
{{- define "chatlane.programs" -}}
console: {prefix: CHATLANE_CONSOLE_, port: 8090, health: true, replicas: 2}
openai: {prefix: CHATLANE_OPENAI_, port: 8091, health: true, replicas: 2, file: {FILE: openai.toml}}
webhooks: {prefix: CHATLANE_WEBHOOKS_, port: 8095, health: true, metrics: true, replicas: 1, single: true, file: {FILE: webhooks.toml}}
mcp: {prefix: CHATLANE_MCP_, port: 8092, health: false, replicas: 1, file: {TOKEN_FILE: token}}
{{- end -}}

{{/* The port of /metrics of a client, or nothing; takes a dict: root, client. */}}
{{- define "chatlane.metricsPort" -}}
{{- with .client.program }}
{{- $program := index (include "chatlane.programs" $.root | fromYaml) . }}
{{- if $program.metrics }}{{ $program.port }}{{ end }}
{{- else }}
{{- if and .client.account (not .client.image) }}8080{{ end }}
{{- end }}
{{- end -}}

{{/* Settings of a program of `frontEnds`; takes a dict: client, program, url. */}}
{{- define "chatlane.frontEndEnv" -}}
{{- $prefix := .program.prefix }}
- {name: {{ $prefix }}HOST, value: 0.0.0.0}
- {name: {{ $prefix }}PORT, value: {{ .program.port | quote }}}
- {name: {{ $prefix }}NATS_URL, value: {{ .url | quote }}}
- {name: {{ $prefix }}PRINCIPAL, value: {{ .client.name }}}
- {name: {{ $prefix }}NKEY_SEED_FILE, value: /run/secrets/chatlane/nats.nk}
- {name: {{ $prefix }}TLS_CA_FILE, value: /run/secrets/chatlane/nats-ca.crt}
{{- range $name, $file := default dict .program.file }}
- {name: {{ $prefix }}{{ $name }}, value: /run/secrets/chatlane/{{ $file }}}
{{- end }}
{{- if eq .client.program "console" }}
- {name: {{ $prefix }}SECRETS_DIR, value: /run/secrets/chatlane}
{{- with .client.operator }}
- {name: {{ $prefix }}OPERATOR_PRINCIPAL, value: {{ .principal }}}
- {name: {{ $prefix }}OPERATOR_NKEY_SEED_FILE, value: /run/secrets/chatlane/operator.nk}
{{- end }}
{{- end }}
{{- end -}}

{{/* Secrets of pods of chatlane and of NATS that operators bring, and their keys. */}}
{{- define "chatlane.secretKeys" -}}
chatlane-postgres-owner: [username, password, dsn]
chatlane-postgres-application: [username, password, dsn]
chatlane-postgres-retention: [username, password, dsn]
chatlane-postgres-ca: [ca.crt]
chatlane-nats-router: [seed]
chatlane-nats-provisioner: [seed]
chatlane-nats-operator: [seed]
chatlane-nats-eraser: [seed]
chatlane-nats-smoke: [seed]
chatlane-nats-ca: [ca.crt]
chatlane-nats-accounts: [accounts.conf]
chatlane-digests: [log, prompt, erasure]
{{- end -}}
