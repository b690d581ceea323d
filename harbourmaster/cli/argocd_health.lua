-- Health of an object of Keptn or Harbourmaster by its status. A version that waits at its gate is Progressing, one
-- that a failed check blocks is Degraded, and one that another version has replaced is Healthy.
local healths = {
  Succeeded = "Healthy", Warning = "Healthy", Deprecated = "Healthy", Completed = "Healthy",
  Running = "Healthy", Online = "Healthy",
  Failed = "Degraded", Degraded = "Degraded", Error = "Degraded", Offline = "Degraded",
  NotReady = "Degraded", Unhealthy = "Degraded", FailingMetrics = "Degraded",
}
local status = type(obj.status) == "table" and obj.status or {}
local state = status.status or status.overallStatus or status.phase or status.state
local message = status.currentPhase or ""
if obj.kind == "KeptnMetric" then
  local failed = status.errMsg ~= nil and status.errMsg ~= ""
  message = failed and status.errMsg or ""
  state = failed and "Error" or status.value ~= nil and status.value ~= "" and "Succeeded" or nil
elseif state == "Completed" and not status.pass and not status.warning then
  state = "Failed"
end
local observed = status.observedGeneration
if observed ~= nil and observed < (obj.metadata.generation or 0) then
  state = nil
end
for _, condition in ipairs(status.conditions or {}) do
  if message == "" and condition.status ~= "True" and condition.message ~= nil then
    message = condition.message
  end
end
local shown = state or "Pending"
return {
  status = healths[shown] or "Progressing",
  message = message == "" and shown or shown .. ": " .. message,
}
