"""Converts KeptnApp and KeptnAppVersion between their versions, without loss (keptn-spec 1.3).

Fields that a version lacks are kept as JSON in an annotation and come back when a version has them.
They come back only if they still fit: the fields of an object's own version are the truth, a
revision belongs to one ``spec.version``, a status to one object, and every value must have its
field's type, because users who can write an object can write its annotations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

JsonObject: TypeAlias = dict[str, Any]

GROUP: Final = "lifecycle.keptn.sh"
HUB: Final = "v1"
"""The version in which objects are stored."""
VERSIONS: Final = (HUB, "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1")
UNCONVERTED: Final = "lifecycle.harbourmaster.dev/unconverted"
"""The annotation with the fields that a version lacks."""
MAX_ANNOTATIONS: Final = 256 * 1024
"""Maximum bytes of an object's annotations, as in the API server."""

SPEC_FIELDS: Final = (
    "appName metadata postDeploymentEvaluations postDeploymentTasks preDeploymentEvaluations"
    " preDeploymentTasks previousVersion promotionTasks revision spanLinks traceId version"
    " workloads"
)
STATUS_FIELDS: Final = (
    "currentPhase currentVersion endTime phaseTraceIDs postDeploymentEvaluationStatus"
    " postDeploymentEvaluationTaskStatus postDeploymentStatus postDeploymentTaskStatus"
    " preDeploymentEvaluationStatus preDeploymentEvaluationTaskStatus preDeploymentStatus"
    " preDeploymentTaskStatus promotionStatus promotionTaskStatus startTime status"
    " workloadOverallStatus workloadStatus"
)
"""The fields of both kinds in any version."""

_ALPHA: Final = frozenset(VERSIONS[2:])
_LATE: Final = frozenset(VERSIONS[:2])
_WITH_REVISION: Final = frozenset(VERSIONS[:4])
_OLDEST: Final = "v1alpha1"
_PHASES: Final = ("preDeployment", "postDeployment")
_CHECKS: Final = tuple(f"{phase}{what}" for what in ("Tasks", "Evaluations") for phase in _PHASES)
_ITEMS: Final = {
    **{f"{phase}TaskStatus": "task" for phase in _PHASES},
    **{f"{phase}EvaluationTaskStatus": "evaluation" for phase in _PHASES},
}
"""The lists whose items have other words in v1alpha1, with their prefix."""
_Integer: TypeAlias = Annotated[int, Meta(ge=-(2**63) + 1, le=2**63 - 1)]
_OMITTED: Final = "omitted"
_OF: Final = "of"


class ConversionError(Exception):
    """An object cannot be converted. The text is one line."""


class _Field(Struct, frozen=True):
    """A field that not every version has. All other fields are the same in each."""

    part: str
    """The part with the field: ``spec`` or ``status``."""
    name: str
    versions: frozenset[str]
    type: Any
    default: str | int | None = None
    """The value that the schema fills in, so that it need not be kept."""
    bound_to: str = ""
    """The field that must be unchanged for a kept value to come back: ``version`` or ``uid``."""

    @property
    def path(self) -> str:
        return f"{self.part}.{self.name}"

    def is_sound(self, value: object) -> bool:
        try:
            msgspec.convert(value, self.type)
        except msgspec.ValidationError:
            return False
        return True


_REVISION: Final = _Field("spec", "revision", _WITH_REVISION, _Integer, 1, "version")
_FIELDS: Final[Mapping[str, tuple[_Field, ...]]] = {
    "KeptnApp": (
        _REVISION,
        *(_Field("spec", name, _ALPHA, list[str]) for name in _CHECKS),
    ),
    "KeptnAppVersion": (
        _REVISION,
        _Field("spec", "metadata", _LATE, dict[str, str]),
        _Field("spec", "spanLinks", _LATE, list[str]),
        _Field("spec", "promotionTasks", _LATE, list[str]),
        _Field("status", "promotionStatus", _LATE, str, "Pending", "uid"),
        _Field("status", "promotionTaskStatus", _LATE, list[dict[str, str]], None, "uid"),
    ),
}


def convert(stored: object, api_version: str) -> JsonObject:
    """Return a copy of the object in another version of our group.

    Fields of ``spec`` and ``status`` may be raw JSON, most of which is not decoded. Only the
    annotations of the metadata may differ. Raises ConversionError.
    """
    head = _head(stored)
    target = _version(api_version)
    if head.version == target:
        return head.copy
    fields = _FIELDS[head.kind]
    converted = {**head.copy, "apiVersion": api_version}
    for part in ("spec", "status"):
        if part in converted:
            converted[part] = dict(_mapping(converted[part], f"{head}: {part}"))
    if head.version == _OLDEST:
        _reword(converted, _to_hub, str(head))
    elif target == _OLDEST:
        _reword(converted, _to_oldest, str(head))
    kept = _take_unconverted(converted)
    _refuse_omitted(head, kept, target, fields)
    missing = [field for field in fields if head.version not in field.versions]
    _restore(converted, kept, missing)
    left = dict(_withheld(converted, kept, fields, target))
    _annotate(converted, left, head, target)
    return converted


class _Head(Struct, frozen=True):
    kind: str
    version: str
    copy: JsonObject

    def __str__(self) -> str:
        metadata = self.copy["metadata"]
        return f"{self.kind} {metadata.get('namespace', '')}/{metadata.get('name', '')}"


def _head(stored: object) -> _Head:
    whole = _mapping(stored, "the object")
    kind, api_version = whole.get("kind"), whole.get("apiVersion")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise ConversionError(f"objects of kind {_short_json(kind)} cannot be converted")
    version = _version(api_version)
    metadata = dict(_mapping(whole.get("metadata"), f"{kind}: metadata"))
    return _Head(kind, version, {**whole, "metadata": metadata})


def _version(api_version: object) -> str:
    group, _, version = str(api_version).partition("/")
    if group != GROUP or version not in VERSIONS:
        raise ConversionError(
            f"{_short_json(api_version)} is not converted here: {GROUP} has {', '.join(VERSIONS)}"
        )
    return version


def _mapping(value: object, where: str) -> JsonObject:
    if not isinstance(value, dict):
        raise ConversionError(f"{where}: expected an object, got {_short_json(value)}")
    return value


def _short_json(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 64 else f"{text[:61]}..."  # noqa: PLR2004 - for a message


def _reword(converted: JsonObject, word: Callable[[JsonObject, str], JsonObject], of: str) -> None:
    status = converted.get("status")
    for name, prefix in _ITEMS.items():
        if status is not None and name in status:
            items = _items(status[name], f"{of}: status.{name}")
            status[name] = [
                word(_mapping(item, f"{of}: status.{name}[{index}]"), prefix)
                for index, item in enumerate(items)
            ]


def _items(value: object, where: str) -> list[Any]:
    if isinstance(value, Raw):
        text = bytes(value)
        # An item takes about 250 bytes of memory.
        if len(text) > MAX_ANNOTATIONS and text.count(b"{") > len(text) // 32:
            raise ConversionError(f"{where}: too many items")
        try:
            value = _decode_items(text) if text.startswith(b"[") else value
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ConversionError(f"{where}: {error}") from None
    if not isinstance(value, list):
        raise ConversionError(f"{where}: expected a list, got {_short_json(value)}")
    return value


def _to_hub(item: JsonObject, prefix: str) -> JsonObject:
    names = {f"{prefix}DefinitionName": "definitionName", f"{prefix}Name": "name"}
    return {names.get(key, key): value for key, value in item.items()}


def _to_oldest(item: JsonObject, prefix: str) -> JsonObject:
    names = {"definitionName": f"{prefix}DefinitionName", "name": f"{prefix}Name"}
    return {names.get(key, key): value for key, value in item.items()}


def _take_unconverted(converted: JsonObject) -> JsonObject:
    """Remove the annotation; a value that is not a JSON object is ignored."""
    metadata = converted["metadata"]
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict) or UNCONVERTED not in annotations:
        return {}
    kept = _decode_kept(annotations)
    rest = {key: value for key, value in annotations.items() if key != UNCONVERTED}
    if rest:
        metadata["annotations"] = rest
    else:
        del metadata["annotations"]
    return kept


def unconverted_checks(annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return the lists of checks that a KeptnApp had before v1beta1, by the name of the field."""
    spec = _decode_kept(annotations).get("spec")
    kept = spec if isinstance(spec, dict) else {}
    return {
        field.name: kept[field.name]
        for field in _FIELDS["KeptnApp"]
        if field.name in _CHECKS and field.is_sound(kept.get(field.name))
    }


def _decode_kept(annotations: Mapping[str, str]) -> JsonObject:
    text = annotations.get(UNCONVERTED, "")
    try:
        # No object is stored with more, and empty lists take many times their text.
        kept = msgspec.json.decode(text) if len(text) <= MAX_ANNOTATIONS else None
    except (msgspec.DecodeError, RecursionError, TypeError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _refuse_omitted(head: _Head, kept: JsonObject, target: str, fields: tuple[_Field, ...]) -> None:
    """Reject an object that was read with a part missing, because a write would lose that part."""
    if target != HUB:
        return
    omitted = kept.get(_OMITTED)
    names = omitted if isinstance(omitted, list) else []
    lost = [
        field.path
        for field in fields
        if field.path in names and head.version not in field.versions and HUB in field.versions
    ]
    if lost:
        raise ConversionError(
            f"{head}: {', '.join(lost)} did not fit into the annotations of {head.version}: "
            f"write the object in {HUB}"
        )


def _restore(converted: JsonObject, kept: JsonObject, missing: list[_Field]) -> None:
    """Put back the kept fields that the object's version lacks, or their defaults."""
    bonds = kept.get(_OF)
    for field in missing:
        part = converted.get(field.part)
        if part is None:
            continue
        saved = kept.get(field.part)
        value = saved.get(field.name) if isinstance(saved, dict) else None
        is_bound = not field.bound_to or (
            isinstance(bonds, dict) and bonds.get(field.bound_to) == _bond(converted, field)
        )
        part.pop(field.name, None)
        if field.is_sound(value) and is_bound:
            part[field.name] = value
        elif field.default is not None:
            part[field.name] = field.default


def _withheld(
    converted: JsonObject, kept: JsonObject, fields: tuple[_Field, ...], target: str
) -> Iterator[tuple[_Field, Any]]:
    """Remove the fields that the target version lacks; return those that must be kept."""
    omitted = kept.get(_OMITTED)
    for field in fields:
        part = converted.get(field.part)
        if target in field.versions or part is None:
            continue
        if field.name in part:
            value = part.pop(field.name)
            if not _is_equal(value, None) and not _is_equal(value, field.default):
                yield field, value
        if isinstance(omitted, list) and field.path in omitted:
            yield field, None


def _annotate(converted: JsonObject, left: dict[_Field, Any], head: _Head, target: str) -> None:
    if not left:
        return
    metadata = converted["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    text = _encode(converted, left)
    if _size(annotations) + len(UNCONVERTED) + len(text.encode()) > MAX_ANNOTATIONS:
        if target == HUB:
            raise ConversionError(
                f"{head}: {', '.join(field.path for field in left)} are too large to be kept: "
                "together with the annotations they may have "
                f"{MAX_ANNOTATIONS} bytes; write the object in {HUB}"
            )
        # Reading must go on: one such object would make a whole list unreadable.
        text = _encode(converted, dict.fromkeys(left))
    metadata["annotations"] = {**annotations, UNCONVERTED: text}


def _encode(converted: JsonObject, left: Mapping[_Field, Any]) -> str:
    kept: JsonObject = {}
    for field, value in left.items():
        if value is None:
            kept.setdefault(_OMITTED, []).append(field.path)
            continue
        kept.setdefault(field.part, {})[field.name] = value
        if field.bound_to:
            kept.setdefault(_OF, {})[field.bound_to] = _bond(converted, field)
    return msgspec.json.encode(kept, order="sorted").decode()


def _bond(converted: JsonObject, field: _Field) -> object:
    if field.bound_to == "uid":
        return converted["metadata"].get("uid", "")
    version = converted.get("spec", {}).get("version", "")
    return _decode_text(version) if isinstance(version, Raw) else version


def _is_equal(value: object, scalar: str | int | None) -> bool:
    """Return whether a value, which may be raw JSON, is this one."""
    return msgspec.json.encode(value) == msgspec.json.encode(scalar)


def _decode_text(raw: Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        return ""


_decode_items: Final = msgspec.json.Decoder(list[dict[str, Raw]]).decode


def _size(annotations: JsonObject) -> int:
    return sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items())
