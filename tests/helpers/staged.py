"""A version on its way through its stages in memory, with the pods of its owner."""

from __future__ import annotations

from msgspec.structs import replace

from harbourmaster.api.times import format_rfc3339
from harbourmaster.gates.stages import PROMOTE_BY_KEY, PROMOTE_KEY, PROMOTE_REASON_KEY
from harbourmaster.lifecycle.stages import pods_allowed
from harbourmaster.lifecycle.steps import StagedPods
from helpers.phased import Walk, workload_version


class Rollout(Walk):
    """A version with stages, whose owner replaces pods of another version."""

    def __init__(self, stages="1, 50%, 100%", *, wanted=4, others=True, version=None, **options):
        rules, spec = options.pop("rules", None), options
        super().__init__(version or workload_version(stages=stages, **spec), rules=rules)
        self.wanted = wanted
        self.others = others
        self.refusal = ""
        self.ready = []
        """The times at which the released pods became ready; "" for one that is not."""

    @property
    def stage(self):
        return self.status.stage

    @property
    def allowed(self):
        return pods_allowed(self.version, self.wanted)

    def look(self):
        progressed = max(self.ready, default="")
        return StagedPods(
            wanted=self.wanted,
            are_others_serving=self.others,
            refusal=self.refusal,
            released=len(self.ready),
            ready_since=progressed if all(self.ready) else "",
            progressed=progressed,
        )

    def release(self):
        """Release as many pods as may be, without more than are wanted; return how many."""
        most = self.wanted or 0 if self.allowed is None else self.allowed
        count = max(min(most, self.wanted or 0) - len(self.ready), 0)
        self.ready += [""] * count
        return count

    def get_ready(self):
        """Let all released pods be ready now."""
        self.ready = [since or format_rfc3339(self.now) for since in self.ready]

    def pass_stage(self):
        """Release the pods of the stage, and let them be ready."""
        self.release()
        self.get_ready()
        self.go()

    def promote(self, number, token="t-1", **notes):  # noqa: S107 - no secret
        """Ask for a stage by hand."""
        given = {
            PROMOTE_KEY: f"{number}/{token}",
            PROMOTE_BY_KEY: "eve",
            PROMOTE_REASON_KEY: "the metric is wrong",
            **notes,
        }
        metadata = self.version.metadata
        annotations = {**metadata.annotations, **given}
        changed = replace(metadata, annotations=annotations)
        self.version = replace(self.version, metadata=changed)
