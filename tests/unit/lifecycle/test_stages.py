"""A version releases its pods stage after stage, and holds where a stage fails."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harbourmaster.gates.stages import PROMOTE_BY_KEY, PROMOTE_REASON_KEY
from harbourmaster.lifecycle.machine import resume, supersede
from harbourmaster.lifecycle.stages import is_staging, pods_allowed
from harbourmaster.lifecycle.steps import Rules
from helpers.phased import workload_version
from helpers.staged import Rollout

EVALUATED = {"stage_evaluations": ("errors",)}
TIMEOUT = 300


def begun(stages="1, 50%, 100%", **options):
    """A version in its first stage."""
    walk = Rollout(stages, **options)
    walk.go()
    return walk


def held(**options):
    """A version of which the first stage has failed by its evaluation."""
    walk = begun(**{**EVALUATED, **options})
    walk.pass_stage()
    walk.end("errors", "Failed")
    walk.go()
    return walk


def stage_of(walk):
    return walk.stage.number, walk.stage.state


def stage_events(walk):
    prefix = "WorkloadStage"
    return [reason.removeprefix(prefix) for reason in walk.reasons if reason.startswith(prefix)]


def change_spec(walk, **fields):
    walk.version = replace(walk.version, spec=replace(walk.version.spec, **fields))


def test_no_pod_is_released_before_the_first_stage():
    walk = Rollout()
    assert walk.allowed == 0
    walk.wanted = None
    walk.go()
    assert (walk.stage, walk.allowed) == (None, 0)
    # The owner may work for another workload for good, of which no event tells.
    assert walk.wait == TIMEOUT


def test_each_stage_releases_its_pods_and_the_last_one_all():
    walk = begun("1, 50%", wanted=8)
    released = []
    while walk.allowed is not None:
        assert walk.status.current_phase == "WorkloadDeploy"
        assert walk.status.status == walk.status.deployment_status == "Progressing"
        released.append(walk.release())
        walk.get_ready()
        walk.go()
    assert released == [1, 3, 4]
    assert walk.stage.state == "Completed"
    assert [result.number for result in walk.stage.results] == [1, 2, 3]
    assert {result.state for result in walk.stage.results} == {"Passed"}
    assert [result.released for result in walk.stage.results] == [1, 4, 8]
    walk.is_deployed = True
    walk.go()
    assert walk.status.status == "Succeeded"
    assert stage_events(walk) == ["Started", "Finished"] * 3


def test_a_version_whose_owner_has_all_pods_ready_is_not_deployed_before_its_last_stage():
    walk = begun()
    walk.is_deployed = True
    walk.release()
    walk.go()
    assert walk.status.deployment_status == "Progressing"


def test_stages_that_add_no_pods_are_skipped_with_their_checks():
    walk = begun("1, 10%, 20%, 50%", wanted=4, **EVALUATED)
    walk.pass_stage()
    walk.end("errors")
    walk.go()
    assert stage_of(walk) == (4, "Releasing")
    assert len(walk.created) == 1


@pytest.mark.parametrize("on_first", [False, True])
def test_a_version_without_a_former_one_is_released_at_once_unless_it_asks_for_stages(on_first):
    walk = begun(others=False, stages_on_first=on_first)
    assert stage_of(walk) == ((1, "Releasing") if on_first else (0, "Skipped"))
    assert walk.allowed == (1 if on_first else None)


def test_an_owner_for_which_stages_do_not_apply_gets_all_pods_at_once_with_a_warning():
    walk = Rollout()
    walk.refusal = "it has reasons"
    walk.go()
    assert (stage_of(walk), walk.allowed) == ((0, "Refused"), None)
    assert walk.stage.message == "it has reasons"
    assert stage_events(walk) == ["Refused"]


@pytest.mark.parametrize("field", [{"stages": "50%, 1%"}, {"stages": "1", "stage_pause": "soon"}])
def test_stages_that_cannot_be_read_release_all_pods(field):
    walk = Rollout(**{"stages": "1", **field})
    walk.go()
    assert (stage_of(walk), walk.allowed) == ((0, "Refused"), None)
    assert stage_events(walk) == ["Refused"]


@pytest.mark.parametrize("field", [{"stages": "50%, 1%"}, {"stages": "1", "stage_pause": "soon"}])
def test_a_version_whose_stages_cannot_be_read_any_more_stays_where_it_is(field):
    walk = begun("1, 100%", wanted=8)
    change_spec(walk, **field)
    assert walk.allowed == 1
    walk.pass_stage()
    assert (stage_of(walk), walk.allowed) == ((1, "Held"), 1)
    assert "metadata.annotations[gates.harbourmaster.dev/stage" in walk.stage.message
    assert stage_events(walk) == ["Started", "Held"]
    change_spec(walk, stages="1, 100%", stage_pause="")
    walk.go()
    assert stage_of(walk) == (2, "Releasing")


def test_more_steps_in_a_changed_template_are_followed():
    walk = begun("1, 100%", wanted=8)
    change_spec(walk, stages="1, 2, 4, 100%")
    walk.pass_stage()
    assert (walk.stage.number, walk.stage.of, walk.allowed) == (2, 4, 2)
    walk.pass_stage()
    walk.pass_stage()
    assert (walk.stage.number, walk.allowed) == (4, 8)


@pytest.mark.parametrize("wanted", [None, 0])
def test_a_stage_waits_while_its_owner_wants_no_pods_or_is_not_known(wanted):
    walk = begun("2, 100%")
    walk.pass_stage()
    walk = begun("2, 100%", stage_pause="Manual")
    walk.pass_stage()
    walk.wanted = wanted
    before = walk.status
    walk.later(10 * TIMEOUT)
    walk.go()
    assert (walk.status, walk.wait) == (before, TIMEOUT)
    assert walk.allowed == (2 if wanted is None else 0)


def test_an_owner_that_is_scaled_to_zero_is_deployed_without_stages():
    walk = Rollout(wanted=0)
    walk.is_deployed = True
    walk.go()
    assert (walk.stage, walk.status.status) == (None, "Succeeded")


def test_the_pause_counts_from_the_youngest_ready_pod_and_a_flap_restarts_it():
    walk = begun("2, 100%", stage_pause="10m")
    walk.pass_stage()
    assert stage_of(walk) == (1, "Paused")
    walk.later(60)
    walk.ready[1] = ""
    walk.go()
    assert stage_of(walk) == (1, "Releasing")
    walk.later(60)
    walk.get_ready()
    walk.go()
    assert (stage_of(walk), walk.wait) == ((1, "Paused"), 600)
    walk.later(599)
    walk.go()
    assert stage_of(walk) == (1, "Paused")
    walk.later(1)
    walk.go()
    assert stage_of(walk) == (2, "Releasing")


def test_a_manual_pause_waits_for_a_person():
    walk = begun(stage_pause="Manual", wanted=8)
    walk.pass_stage()
    walk.later(10**6)
    walk.go()
    assert (stage_of(walk), walk.wait) == ((1, "Paused"), None)
    walk.promote(2)
    walk.go()
    assert stage_of(walk) == (2, "Releasing")


def test_the_checks_of_a_stage_run_once_and_all_at_once():
    checks = {"stage_tasks": ("smoke",), "stage_evaluations": ("errors",)}
    walk = begun(wanted=8, **checks)
    walk.pass_stage()
    assert stage_of(walk) == (1, "Checking")
    assert {creation.phase.check_type for creation, _ in walk.created} == {
        "stage-1",
        "stage-1-eval",
    }
    walk.end("smoke")
    walk.go()
    walk.ready[0] = ""
    walk.go()
    assert stage_of(walk) == (1, "Checking")
    walk.end("errors")
    walk.go()
    assert stage_of(walk) == (2, "Releasing")
    assert walk.status.stage_task_status == walk.status.stage_evaluation_status == ()
    walk.pass_stage()
    assert len(walk.created) == 4


def test_a_failed_check_holds_and_no_deployment_timeout_runs():
    walk = held(wanted=12)
    assert stage_of(walk) == (1, "Held")
    assert walk.stage.message == "evaluation errors failed"
    assert [result.state for result in walk.stage.results] == ["Failed"]
    assert stage_events(walk)[-1] == "Held"
    told = len(walk.told)
    walk.later(100 * TIMEOUT)
    walk.ready = [""]
    walk.go()
    assert stage_of(walk) == (1, "Held")
    assert walk.status.status == "Progressing"
    assert len(walk.told) == told


def test_a_check_that_only_warns_does_not_hold():
    walk = held(wanted=8, rules=Rules(is_blocking=False))
    assert stage_of(walk) == (2, "Releasing")
    assert walk.stage.results[0].state == "Warning"


@pytest.mark.parametrize("wanted", [1, 4, 40, None])
def test_scaling_releases_no_further_pods_of_a_stage_that_is_held(wanted):
    walk = held(stages="50%, 100%", wanted=4)
    walk.wanted = wanted
    walk.go()
    assert (walk.stage.state, walk.allowed) == ("Held", 2)


def test_a_pod_that_is_being_replaced_when_the_stage_fails_keeps_its_place():
    walk = begun("3, 100%", wanted=12, **EVALUATED)
    walk.pass_stage()
    walk.ready.pop()
    walk.end("errors", "Failed")
    walk.go()
    assert (walk.stage.state, walk.allowed) == ("Held", 3)


def test_pods_that_a_larger_owner_could_have_had_are_not_released_after_the_failure():
    walk = begun("50%, 100%", wanted=4, **EVALUATED)
    walk.pass_stage()
    walk.wanted = 40
    walk.go()
    assert walk.allowed == 20
    walk.end("errors", "Failed")
    walk.go()
    assert walk.allowed == 2


def test_a_stage_of_a_smaller_owner_holds_as_many_as_it_has():
    walk = begun("50%, 100%", wanted=8, **EVALUATED)
    walk.pass_stage()
    walk.wanted, walk.ready = 2, walk.ready[:1]
    walk.end("errors", "Failed")
    walk.go()
    assert walk.allowed == 1


def test_pods_that_do_not_become_ready_hold_the_stage_until_they_are():
    walk = begun("2, 100%")
    walk.release()
    walk.go()
    assert walk.wait == TIMEOUT
    walk.later(TIMEOUT)
    walk.go()
    assert (walk.stage.state, walk.allowed) == ("Held", 2)
    assert walk.stage.message == "its pods are not ready after 300 s"
    walk.get_ready()
    walk.go()
    assert stage_of(walk) == (2, "Releasing")


def test_each_pod_that_becomes_ready_restarts_the_time_in_which_the_next_one_must_be():
    walk = begun("2, 100%")
    walk.later(TIMEOUT - 1)
    walk.ready = [""]
    walk.get_ready()
    walk.later(TIMEOUT - 1)
    walk.go()
    assert (stage_of(walk), walk.wait) == ((1, "Releasing"), 1)


@pytest.mark.parametrize(("wanted", "allowed"), [(4, 1), (40, 4)])
def test_a_late_stage_holds_the_pods_of_the_owner_at_that_time(wanted, allowed):
    walk = begun("10%, 100%", wanted=20)
    walk.wanted = wanted
    walk.later(TIMEOUT)
    walk.go()
    assert (walk.stage.state, walk.allowed) == ("Held", allowed)


def test_a_late_stage_that_is_ready_goes_on_for_an_owner_that_has_grown_meanwhile():
    walk = begun("50%, 100%", wanted=4)
    walk.release()
    walk.later(TIMEOUT)
    walk.go()
    walk.wanted = 40
    assert walk.release() == 0
    walk.get_ready()
    walk.go()
    assert (walk.stage.state, walk.allowed) == ("Releasing", 20)


def test_a_person_releases_the_next_stage_once():
    walk = held(wanted=8)
    walk.promote(2)
    walk.go()
    assert (stage_of(walk), walk.allowed) == ((2, "Releasing"), 4)
    assert walk.stage.results[-1].state == "Promoted"
    assert walk.stage.message == ""
    assert walk.stage.results[-1].message == ("stage 1 of 3 was ended by eve: the metric is wrong")
    assert walk.status.stage_evaluation_status == ()
    walk.pass_stage()
    walk.end("errors", "Failed")
    walk.go()
    assert (stage_of(walk), walk.allowed) == ((2, "Held"), 4)
    # The request is spent, and an earlier stage is none.
    walk.promote(2, "t-2")
    walk.go()
    assert (stage_of(walk), walk.stage.token) == ((2, "Held"), "t-2")
    walk.promote(3, "t-3")
    walk.go()
    assert stage_of(walk) == (3, "Releasing")


def test_a_person_releases_all_stages():
    walk = held(wanted=8)
    walk.promote(walk.stage.of + 1)
    walk.go()
    assert (walk.stage.state, walk.allowed) == ("Completed", None)


@pytest.mark.parametrize(
    "note",
    [
        {"gates.harbourmaster.dev/promote": "2"},
        {"gates.harbourmaster.dev/promote": "two/t-1"},
        {"gates.harbourmaster.dev/promote": "/t-1"},
        {"gates.harbourmaster.dev/promote-by": ""},
    ],
)
def test_a_request_without_a_stage_a_token_or_a_person_is_none(note):
    walk = held(wanted=8)
    walk.promote(2, **note)
    walk.go()
    assert stage_of(walk) == (1, "Held")


def test_a_superseded_version_releases_nothing_and_starts_again_with_the_first_stage():
    walk = begun(wanted=8)
    walk.pass_stage()
    walk.version = replace(walk.version, status=supersede(walk.version, walk.now))
    assert (walk.status.status, walk.allowed) == ("Deprecated", 0)
    walk.ready = []
    walk.version = replace(walk.version, status=resume(walk.version))
    assert walk.allowed == 0
    walk.go()
    assert (stage_of(walk), walk.allowed) == ((1, "Releasing"), 1)


def test_a_version_whose_pods_were_all_released_does_not_start_again():
    walk = held(wanted=8)
    walk.promote(walk.stage.of + 1)
    walk.go()
    for change in (supersede(walk.version, walk.now), None):
        walk.version = replace(walk.version, status=change or resume(walk.version))
        assert walk.allowed is None
    walk.go()
    assert walk.stage.state == "Completed"


def test_a_request_is_spent_also_when_its_version_is_deployed_again():
    walk = held(wanted=8)
    walk.promote(2)
    walk.go()
    walk.version = replace(walk.version, status=supersede(walk.version, walk.now))
    walk.ready = []
    walk.version = replace(walk.version, status=resume(walk.version))
    walk.go()
    assert stage_of(walk) == (1, "Releasing")
    walk.go()
    assert stage_of(walk) == (1, "Releasing")


def test_a_version_that_was_deployed_has_no_stages_any_more():
    version = workload_version(stages="1, 100%")
    assert is_staging(version)
    status = replace(version.status, deployment_status="Succeeded", status="Succeeded")
    deployed = replace(version, status=status)
    assert not is_staging(deployed)
    assert pods_allowed(deployed, 12) is None
    assert pods_allowed(workload_version(), 12) is None


def test_the_deployment_must_be_done_in_time_after_the_last_stage():
    walk = begun("1, 100%", stage_pause="1h", wanted=2)
    for _ in range(2):
        walk.pass_stage()
        walk.later(3600)
        walk.go()
    assert (walk.stage.state, walk.status.status) == ("Completed", "Progressing")
    assert walk.wait == TIMEOUT
    walk.later(TIMEOUT)
    walk.go()
    assert walk.status.status == "Failed"
    assert walk.allowed is None


@pytest.mark.parametrize(("stages", "number", "allowed"), [("1", 1, 1), ("1, 2, 3, 50%", 3, 3)])
def test_other_stages_of_the_same_version_release_no_pod_unchecked(stages, number, allowed):
    walk = begun("1, 30%, 60%", wanted=10)
    walk.pass_stage()
    assert (walk.stage.number, walk.allowed) == (2, 3)
    walk.release()
    change_spec(walk, stages=stages)
    assert walk.allowed == 3
    walk.go()
    assert (walk.stage.number, walk.allowed) == (number, allowed)


@pytest.mark.parametrize("number", ["9" * 5000, "\u0663", "-1", ""])
def test_a_promotion_that_names_no_stage_is_ignored(number):
    walk = held()
    walk.promote(number)
    walk.go()
    assert (stage_of(walk), walk.stage.token) == ((1, "Held"), "")


def test_a_promotion_by_a_user_without_a_guard_fills_no_status():
    walk = held()
    walk.promote(2, token="t" * 10_000)
    walk.go()
    assert (stage_of(walk), walk.stage.token) == ((1, "Held"), "")
    notes = dict.fromkeys((PROMOTE_BY_KEY, PROMOTE_REASON_KEY), "x" * 100_000)
    walk.promote(2, **notes)
    walk.go()
    assert stage_of(walk) == (2, "Releasing")
    assert len(walk.stage.results[-1].message) < 3000
