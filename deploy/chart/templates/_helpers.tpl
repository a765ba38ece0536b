{{- define "distributary.name" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}{{ else if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "distributary.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "distributary.labels" -}}
{{ include "distributary.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* With more labels, which win over commonLabels but not over those that select the pods: a key twice is an error. */}}
{{- define "distributary.labelsWith" -}}
{{- $all := index . 0 }}
{{- $selector := include "distributary.selector" $all | fromYaml }}
{{- merge $selector (index . 1) (include "distributary.labels" $all | fromYaml) | toYaml }}
{{- end }}

{{/* Of the xDS port: https is HTTP/2 over TLS, which a mesh passes through. */}}
{{- define "distributary.appProtocol" -}}
{{- if dig "xds" "tls" "" .Values.config }}https{{ else }}kubernetes.io/h2c{{ end }}
{{- end }}

{{- define "distributary.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "distributary.name" .) }}
{{- end }}

{{- define "distributary.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled }}{{ .Values.tls.secretName | default (printf "%s-tls" (include "distributary.name" .)) }}{{ else }}{{ .Values.tls.secretName }}{{ end }}
{{- end }}

{{- define "distributary.pod" -}}
metadata:
  labels: {{ include "distributary.labelsWith" (tuple . .Values.podLabels) | nindent 4 }}
  {{- $annotations := deepCopy .Values.podAnnotations }}
  {{- if and .Values.monitoring.scrapeAnnotations (not .Values.monitoring.serviceMonitor.enabled) }}
  {{- $port := toString .Values.ports.metrics }}
  {{- $scrape := dict "prometheus.io/scrape" "true" "prometheus.io/port" $port "prometheus.io/path" "/metrics" }}
  {{- $annotations = merge $annotations $scrape }}
  {{- end }}
  {{- with $annotations }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "distributary.serviceAccount" . }}
  automountServiceAccountToken: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ include "distributary.gracePeriod" . }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext: {{ toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.initContainers }}
  initContainers: {{ toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: relay
      image: "{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - run
        - --config=/etc/distributary/relay.yaml
        - --log-level={{ .Values.log.level }}
        - --log-format={{ .Values.log.format }}
      env:
        - name: POD_NAME
          valueFrom: { fieldRef: { fieldPath: metadata.name } }
        {{- with .Values.env }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- with .Values.envFrom }}
      envFrom: {{ toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - { name: xds, containerPort: {{ .Values.ports.xds }} }
        - { name: metrics, containerPort: {{ .Values.ports.metrics }} }
        {{- if hasKey .Values.config "rest" }}
        - { name: rest, containerPort: {{ .Values.ports.rest }} }
        {{- end }}
      {{- range $name, $probe := .Values.probes }}
      {{ $name }}Probe: {{ toYaml $probe | nindent 8 }}
      {{- end }}
      resources: {{ toYaml .Values.resources | nindent 8 }}
      securityContext: {{ toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        # A directory and not a single file: what is mounted with a subPath never changes.
        - { name: config, mountPath: /etc/distributary, readOnly: true }
        - { name: tmp, mountPath: /tmp }
        {{- if .Values.persistence.enabled }}
        - { name: cache, mountPath: /var/lib/distributary }
        {{- end }}
        {{- if include "distributary.tlsSecret" . }}
        - { name: tls, mountPath: /tls, readOnly: true }
        {{- end }}
        {{- if .Values.tls.spiffe.enabled }}
        - { name: spiffe, mountPath: /spiffe, readOnly: true }
        {{- end }}
        {{- with .Values.extraVolumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
    {{- with .Values.extraContainers }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    - {{ toYaml . | nindent 6 | trim }}
      {{- if not (hasKey . "labelSelector") }}
      labelSelector:
        matchLabels: {{ include "distributary.selector" $ | nindent 10 }}
      {{- end }}
    {{- end }}
  {{- end }}
  volumes:
    - name: config
      configMap: { name: {{ include "distributary.name" . }} }
    - name: tmp
      emptyDir: {}
    {{- if include "distributary.tlsSecret" . }}
    - name: tls
      secret: { secretName: {{ include "distributary.tlsSecret" . }} }
    {{- end }}
    {{- if .Values.tls.spiffe.enabled }}
    - name: spiffe
      csi: { driver: {{ .Values.tls.spiffe.driver }}, readOnly: true }
    {{- end }}
    {{- with .Values.extraVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with .Values.extraPodSpec }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{- define "distributary.ipFamilies" -}}
{{- with .Values.service.ipFamilyPolicy }}
  ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
  ipFamilies: {{ toJson . }}
{{- end }}
{{- end }}

{{/* What is left of a replica after this time is killed. */}}
{{- define "distributary.gracePeriod" -}}
{{- $delay := .Values.config.drain_delay }}
{{- $timeout := .Values.config.drain_timeout }}
{{- $drain := addf (include "distributary.seconds" $delay) (include "distributary.seconds" $timeout) }}
{{- $given := .Values.terminationGracePeriodSeconds }}
{{- if kindIs "invalid" $given }}
{{- add (ceil $drain) 15 }}
{{- else if ge $drain (float64 $given) }}
{{- fail (printf "terminationGracePeriodSeconds: %v must be longer than config.drain_delay (%v) and config.drain_timeout (%v) together" $given $delay $timeout) }}
{{- else }}
{{- $given }}
{{- end }}
{{- end }}

{{/* What the relay is given. A volume without a path in it would stay empty. */}}
{{- define "distributary.config" -}}
{{- $config := deepCopy .Values.config }}
{{- if .Values.persistence.enabled }}
{{- $config = merge $config (dict "cache" (dict "persistence" (dict "path" "/var/lib/distributary"))) }}
{{- $path := $config.cache.persistence.path }}
{{- if not (hasPrefix "/var/lib/distributary" $path) }}
{{- fail (printf "config.cache.persistence.path: %s is not on the volume of persistence.enabled, which is mounted at /var/lib/distributary" $path) }}
{{- end }}
{{- end }}
{{- $ipv6 := or (has "IPv6" .Values.service.ipFamilies) (eq .Values.service.ipFamilyPolicy "RequireDualStack") }}
{{- range $listener, $port := .Values.ports }}
{{- $default := and (eq $listener "rest") (hasKey $config "rest") | ternary "0.0.0.0:18001" "" }}
{{- $address := dig $listener "address" $default $config | toString }}
{{- $found := regexFind ":[0-9]+$" $address | trimPrefix ":" }}
{{- if and $found (ne $found (int $port | toString)) }}
{{- fail (printf "config.%s.address: %s and ports.%s: %d must be the same port" $listener $address $listener (int $port)) }}
{{- end }}
{{- if and $ipv6 (hasPrefix "0.0.0.0:" $address) }}
{{- fail (printf "config.%s.address: %s is for IPv4 only, and the Service has IPv6: write \"[::]:%d\"" $listener $address (int $port)) }}
{{- end }}
{{- end }}
{{- with dig "limits" "memory" "" .Values.resources }}
{{- $limit := include "distributary.bytes" . | int64 }}
{{- /* A quarter is the cache's, 150 MiB are the process's and an eighth the event loop's (docs/scale.md). */}}
{{- /* An eighth, or what is left of a small limit, is held for single peers: one of them may have half of that. */}}
{{- /* Workers have caches and accounts of their own, and so has the process that starts them. */}}
{{- $processes := dig "workers" 0 $config | int64 | add1 }}
{{- $limit = div $limit $processes }}
{{- $config = merge $config (dict "cache" (dict "max_bytes" (div $limit 4))) }}
{{- $cache := $config.cache.max_bytes | int64 }}
{{- $left := sub (sub $limit (div $limit 8)) (add 157286400 $cache) }}
{{- if lt $left 0 }}
{{- $least := mul $processes (max 240 (div (add (mul $cache 4) 1048575) 1048576)) }}
{{- fail (printf "resources.limits.memory: %v is too small for config.workers + 1 = %d processes with config.cache.max_bytes: %d each; set it to %dMi" . $processes $cache $least) }}
{{- end }}
{{- $most := max $left 8388608 }}
{{- $peer := dig "limits" "max_held_bytes_per_peer" 0 $config | int64 }}
{{- $config = merge $config (dict "limits" (dict "max_held_bytes" (max $peer (min (div $limit 8) $most)))) }}
{{- $held := $config.limits.max_held_bytes | int64 }}
{{- if gt $held $most }}
{{- fail (printf "config.limits.max_held_bytes: %d does not fit into resources.limits.memory: %v of %d processes, beside config.cache.max_bytes: %d; set it to %d or less, or the memory limit higher" $held . $processes $cache $most) }}
{{- end }}
{{- $config = merge $config (dict "limits" (dict "max_held_bytes_per_peer" (div $held 2))) }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{/* Of a quantity of Kubernetes. */}}
{{- define "distributary.bytes" -}}
{{- $text := toString . }}
{{- $number := regexFind "^[0-9.]+(e[+][0-9]+)?" $text }}
{{- $unit := trimPrefix $number $text }}
{{- $bytes := dict "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 }}
{{- if not (and $number (hasKey $bytes $unit)) }}
{{- fail (printf "resources.limits.memory: %s is not a number with k, M, G, T, Ki, Mi, Gi or Ti" $text) }}
{{- end }}
{{- mulf $number (get $bytes $unit) | int64 }}
{{- end }}

{{/* Of a duration of the configuration; 0: it is none that Helm can read. */}}
{{- define "distributary.seconds" -}}
{{- $text := toString . }}
{{- $number := regexFind "^[0-9.]+" $text }}
{{- $unit := trimPrefix $number $text }}
{{- $seconds := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 }}
{{- if and $number (hasKey $seconds $unit) }}{{ mulf $number (get $seconds $unit) }}{{ else }}0{{ end }}
{{- end }}
