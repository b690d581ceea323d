"""Validates that a KeptnTaskDefinition can run (keptn-spec 1.5). Pure.

The schema accepts much that no task could ever use; that is rejected, or causes a warning where
Keptn accepts it. Objects that a definition names are in its own namespace, so a name is a name and
no path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.durations import parse_duration
from harbourmaster.api.field_errors import FieldError, invalid, required, warn_of_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.lifecycle.model import RuntimeSpec, TaskDefinition, TaskDefinitionSpec

RUNTIMES: Final = ("container", "python", "deno")


def validate(definition: TaskDefinition) -> list[FieldError]:
    """Return every fault, in the order of the fields; none if a task can run the definition."""
    spec = definition.spec
    return [
        *_runtimes(spec),
        *_function(definition, "deno", spec.deno),
        *_function(definition, "python", spec.python),
        *_limits(spec),
        *_names(spec),
    ]


def _runtimes(spec: TaskDefinitionSpec) -> Iterator[FieldError]:
    given = [name for name in RUNTIMES if getattr(spec, name) is not None]
    if not given:
        text = "forbidden: either container, python or deno has to be defined"
        moved = "; spec.function is spec.deno now: rename it" if spec.function is not None else ""
        yield FieldError("spec", "Invalid value", "null", text + moved)
    elif len(given) > 1:
        text = "forbidden: only one of container, python and deno may be defined"
        yield invalid("spec", ", ".join(given), text)


def _function(
    definition: TaskDefinition, name: str, runtime: RuntimeSpec | None
) -> Iterator[FieldError]:
    if runtime is None:
        return
    at = f"spec.{name}"
    reference = runtime.function_ref.name if runtime.function_ref else ""
    config_map = runtime.config_map_ref.name if runtime.config_map_ref else ""
    code = runtime.inline.code if runtime.inline else ""
    url = runtime.http_ref.url if runtime.http_ref else ""
    if not (reference or config_map or code or url):
        text = "nothing to run: give one of inline, httpRef, functionRef, configMapRef"
        yield required(at, text).as_warning()
    if reference and reference == definition.metadata.name:
        text = "a definition cannot run itself"
        yield invalid(f"{at}.functionRef.name", reference, text).as_warning()
    yield from warn_of_name(f"{at}.functionRef.name", reference)
    yield from warn_of_name(f"{at}.configMapRef.name", config_map)
    yield from warn_of_name(f"{at}.secureParameters.secret", runtime.secure_parameters.secret)


def _limits(spec: TaskDefinitionSpec) -> Iterator[FieldError]:
    if spec.retries is not None and spec.retries < 0:
        yield invalid("spec.retries", spec.retries, "must not be negative")
    if spec.timeout:
        try:
            if parse_duration(spec.timeout) < 0:
                yield invalid("spec.timeout", spec.timeout, "must not be negative")
        except ValueError as error:
            yield invalid("spec.timeout", spec.timeout, str(error))
    ttl = spec.ttl_seconds_after_finished
    if ttl is not None and ttl < 0:
        yield invalid("spec.ttlSecondsAfterFinished", ttl, "must not be negative")


def _names(spec: TaskDefinitionSpec) -> Iterator[FieldError]:
    if spec.service_account:
        yield from warn_of_name("spec.serviceAccount.name", spec.service_account.name)
    for index, secret in enumerate(spec.image_pull_secrets):
        yield from warn_of_name(f"spec.imagePullSecrets[{index}].name", secret.name)
