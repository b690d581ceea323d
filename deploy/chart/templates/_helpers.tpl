{{/* Which components are on: those that values name, and those that are part of others. As JSON. */}}
{{- define "harbourmaster.components" -}}
{{- if kindIs "invalid" .Values.monitoring }}
{{- fail "the values are those of an older chart: --reuse-values: use --reset-then-reuse-values" }}
{{- end -}}
{{- $with := deepCopy .Values.components -}}
{{- $_ := set $with "certManager" (ne .Values.certificates "own") -}}
{{- $_ := set $with "hardened" .Values.hardened.enabled -}}
{{- $_ := set $with "besideKeptn" .Values.besideKeptn -}}
{{- if .Values.besideKeptn }}{{ $_ := set $with "guards" false }}{{ $_ := set $with "ingressRules" false }}{{ end -}}
{{- range $name, $parts := include "harbourmaster.parts" . | fromJson }}
{{- if get $with $name }}{{ range $parts }}{{ $_ := set $with . true }}{{ end }}{{ end }}
{{- end -}}
{{- if .Values.shadow }}
{{- range $name, $_ := $with }}{{ $_ := set $with $name false }}{{ end -}}
{{- if ne (int .Values.webhook.replicas) 1 }}
{{- fail "shadow mode needs one pod that sees all objects: webhook.replicas: set it to 1" }}
{{- end -}}
{{- end -}}
{{- $_ := set $with "shadow" .Values.shadow -}}
{{- toJson $with -}}
{{- end }}

{{/* Labels of all objects, as JSON. */}}
{{- define "harbourmaster.labels" -}}
{{- toJson (merge (dict) .Values.commonLabels (dict
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/version" .Chart.AppVersion
  "helm.sh/chart" (printf "%s-%s" .Chart.Name (replace "+" "_" .Chart.Version)))) -}}
{{- end }}

{{/* The name of the Secret with the certificate. */}}
{{- define "harbourmaster.certificate" -}}
{{- if eq .Values.certificates "existing" }}
{{- required "no Secret with the certificate: existingCertificate.secretName: give its name" .Values.existingCertificate.secretName -}}
{{- else }}harbourmaster-webhook-cert{{ end -}}
{{- end }}

{{/* The authority of an existing certificate; empty if another client adds it. */}}
{{- define "harbourmaster.caBundle" -}}
{{- if eq .Values.certificates "existing" }}
{{- required "no authority of the certificate: existingCertificate.ca: give it as PEM, by --set-file" .Values.existingCertificate.ca | b64enc -}}
{{- end -}}
{{- end }}

{{- define "harbourmaster.image" -}}
{{- if and .Values.image.tag .Values.image.digest (eq .Values.image.digest (include "harbourmaster.chartDigest" .)) }}
{{- fail (printf "image.tag=%s selects no other image, because the chart fixes the digest of its own: image.digest: set it to the digest of that tag, or to an empty text" .Values.image.tag) }}
{{- end -}}
{{- .Values.image.repository -}}
{{- with .Values.image.tag }}:{{ . }}{{ end -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end }}

{{- define "harbourmaster.schedulerImage" -}}
{{- required "no image of kube-scheduler: scheduler.image: give the one of your cluster's version" .Values.scheduler.image -}}
{{- end }}

{{/* The peers that are the API server, as JSON. */}}
{{- define "harbourmaster.apiServer" -}}
{{- $peers := list -}}
{{- range .Values.hardened.apiServerCIDRs }}{{ $peers = append $peers (dict "ipBlock" (dict "cidr" .)) }}{{ end -}}
{{- if not $peers }}
{{- fail "no address ranges of the API server: hardened.apiServerCIDRs: docs/howto/installing.md shows how to find them" }}
{{- end -}}
{{- toJson $peers -}}
{{- end }}

{{/* Settings as flags, as a JSON list; without those that are not set. */}}
{{- define "harbourmaster.flags" -}}
{{- $flags := list -}}
{{- range $name, $value := . }}
{{- if not (kindIs "invalid" $value) }}
{{- $text := toJson $value }}
{{- if kindIs "string" $value }}{{ $text = $value }}{{ end }}
{{- if kindIs "slice" $value }}{{ $text = join "," $value }}{{ end }}
{{- $flags = append $flags (printf "--%s=%s" $name $text) }}
{{- end }}
{{- end -}}
{{- toJson $flags -}}
{{- end }}

{{- define "harbourmaster.webhookFlags" -}}
{{- $named := dict
  "features" .Values.features
  "port" .Values.webhook.port
  "health-port" .Values.webhook.healthPort -}}
{{- include "harbourmaster.flags" (mergeOverwrite $named .Values.webhook.settings) -}}
{{- end }}

{{/* The mode of the values, or else of the live controller: an upgrade keeps it; empty without one. */}}
{{- define "harbourmaster.references" -}}
{{- $mode := .Values.crossNamespaceReferences | default "" -}}
{{- $live := lookup "apps/v1" "Deployment" .Release.Namespace "harbourmaster-controller" -}}
{{- if and $live (not $mode) (not .Values.hardened.enabled) -}}
{{- $mode = "Open" -}}
{{- range (first $live.spec.template.spec.containers).args -}}
{{- if hasPrefix "--cross-namespace-references=" . }}{{ $mode = trimPrefix "--cross-namespace-references=" . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $mode -}}
{{- end }}

{{- define "harbourmaster.controllerFlags" -}}
{{- $named := dict
  "controllers" .Values.controllers
  "health-port" .Values.controller.healthPort
  "metrics-custom-metrics-port" .Values.controller.port
  "webhook-excluded-namespaces" .Values.admission.excludedNamespaces
  "webhook-failure-policy" .Values.admission.failurePolicy
  "webhook-gated-failure-policy" .Values.admission.gatedFailurePolicy -}}
{{- with include "harbourmaster.references" . }}{{ $_ := set $named "cross-namespace-references" . }}{{ end -}}
{{- include "harbourmaster.flags" (mergeOverwrite $named .Values.controller.settings) -}}
{{- end }}
