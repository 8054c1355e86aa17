"""Reads a CDK cloud assembly (or a single template) into resources with paths and resolved properties."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retrylab.errors import LabError, Refused
from retrylab.intrinsics import Resolver, Scope

ACCOUNT = "111122223333"
DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True)
class Resource:
    """One resource of one template. `path` is the construct path without the trailing `/Resource`."""

    stack: str
    logical_id: str
    path: str
    type: str
    properties: Mapping[str, Any]
    metadata: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.path} ({self.type})"


@dataclass(frozen=True)
class Template:
    """A template with the name and the environment that its stack would get."""

    stack: str
    body: Mapping[str, Any]
    region: str
    account: str
    folder: Path
    assets: Mapping[str, Path] = field(default_factory=dict)


class Assembly:
    """All resources of a cloud assembly, found by construct path, logical id or physical name.

    Raises LabError when the folder holds no readable assembly.
    """

    def __init__(self, templates: list[Template], *, source: Path) -> None:
        self.source = source
        self.templates = templates
        self._resolver = Resolver([_scope_of(template) for template in templates])
        self._resources = [
            resource
            for template in templates
            for resource in _resources_of(template)
            if self._resolver.exists(template.stack, resource.logical_id)
        ]
        self._template_of = {template.stack: template for template in templates}

    @classmethod
    def load(cls, folder: Path) -> Assembly:
        """Read the assembly that `cdk synth` wrote to `folder` (usually `cdk.out`)."""
        manifest_file = folder / "manifest.json"
        if not manifest_file.is_file():
            raise LabError(f"{folder}: no manifest.json there; wanted a cloud assembly, as `cdk synth` writes it")
        manifest = _read(manifest_file)
        templates = []
        for name, artifact in manifest.get("artifacts", {}).items():
            if artifact["type"] != "aws:cloudformation:stack":
                continue
            properties = artifact["properties"]
            account, region = _environment_of(artifact["environment"])
            body = _read(folder / properties["templateFile"])
            if "Transform" in body:
                raise Refused(f"{name}: Transform {body['Transform']!r}; the lab reads templates after their transform")
            stack = artifact.get("displayName") or name
            stack_name = properties.get("stackName", name)
            assets = _file_assets(folder / f"{name}.assets.json")
            templates.append(Template(stack, {**body, "StackName": stack_name}, region, account, folder, assets))
        if not templates:
            raise LabError(f"{folder}: the assembly holds no stack; wanted at least one")
        return cls(templates, source=folder)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._resources)

    def of_type(self, *types: str) -> list[Resource]:
        """All resources of these CloudFormation types, in template order."""
        return [resource for resource in self._resources if resource.type in types]

    def find(self, name: str, *types: str) -> Resource:
        """The one resource that `name` means: a construct path, its last parts, or a logical id.

        Raises LabError naming the candidates when there is none or more than one.
        """
        pool = self.of_type(*types) if types else self._resources
        exact = [r for r in pool if name in (r.path, r.logical_id)]
        hits = exact or [r for r in pool if f"/{r.path}".endswith(f"/{name}")]
        hits = hits or [r for r in pool if f"/{name}/" in f"/{r.path}/"]
        if len(hits) == 1:
            return hits[0]
        wanted = " or ".join(types) or "resource"
        listing = ", ".join(r.path for r in (hits or pool)) or "none"
        problem = "names more than one" if hits else "names no"
        raise LabError(f"{name!r} {problem} {wanted} in {self.source}; there are: {listing}")

    def properties(self, resource: Resource) -> dict[str, Any]:
        """The resource's properties with every intrinsic function resolved, or an error that names the value."""
        value = self._resolver.resolve(resource.stack, resource.properties, where=resource.path)
        assert isinstance(value, dict)
        return value

    def ref(self, resource: Resource) -> str:
        """What `Ref` on this resource gives: its physical name in the lab."""
        return self._resolver.ref(resource.stack, resource.logical_id)

    def arn(self, resource: Resource) -> str:
        """What `Fn::GetAtt Arn` on this resource gives in the lab."""
        return self._resolver.attribute(resource.stack, resource.logical_id, "Arn")

    def by_arn(self, arn: str) -> Resource | None:
        """The resource of this assembly that an ARN, or an ARN with a qualifier or suffix behind it, belongs to."""
        return self._by_identity(arn)

    def _by_identity(self, identity: str) -> Resource | None:
        best: tuple[int, Resource] | None = None
        for resource in self._resources:
            for candidate in self._resolver.identities(resource.stack, resource.logical_id):
                whole = identity == candidate or identity.startswith((f"{candidate}:", f"{candidate}/"))
                if whole and (best is None or len(candidate) > best[0]):
                    best = (len(candidate), resource)
        return best[1] if best else None

    def region_of(self, resource: Resource) -> str:
        return self._template_of[resource.stack].region

    def asset_folder(self, resource: Resource) -> Path:
        """The folder whose files the resource would deploy, from its `aws:asset:path` or the asset manifest."""
        template = self._template_of[resource.stack]
        named = resource.metadata.get("aws:asset:path")
        if named:
            path = (template.folder / str(named)).resolve()
        else:
            content = resource.properties.get("Code") or resource.properties.get("Content") or {}
            key = str(content.get("S3Key", "")).split(".")[0]
            if key not in template.assets:
                raise LabError(f"{resource.path}: its code is no file asset of the assembly; found {content!r}")
            path = template.assets[key]
        if not path.exists():
            raise LabError(f"{resource.path}: its asset {path} does not exist; synthesize again")
        return path


def _read(file: Path) -> dict[str, Any]:
    try:
        body = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise LabError(f"{file}: {error}; wanted a JSON file, synthesize again") from None
    if not isinstance(body, dict):
        raise LabError(f"{file}: found {type(body).__name__}; wanted a JSON object")
    return body


def _environment_of(uri: str) -> tuple[str, str]:
    account, region = uri.removeprefix("aws://").split("/")
    return (
        ACCOUNT if account == "unknown-account" else account,
        DEFAULT_REGION if region == "unknown-region" else region,
    )


def _file_assets(manifest: Path) -> dict[str, Path]:
    if not manifest.is_file():
        return {}
    files = json.loads(manifest.read_text()).get("files", {})
    return {
        key: (manifest.parent / entry["source"]["path"]).resolve()
        for key, entry in files.items()
        if "path" in entry["source"]
    }


def _resources_of(template: Template) -> Iterator[Resource]:
    for logical_id, body in template.body.get("Resources", {}).items():
        if not isinstance(body, Mapping) or "Type" not in body:
            raise Refused(f"{template.stack}/{logical_id}: no resource with a Type; the lab cannot read it")
        metadata = body.get("Metadata", {})
        path = str(metadata.get("aws:cdk:path", f"{template.stack}/{logical_id}"))
        yield Resource(
            stack=template.stack,
            logical_id=logical_id,
            path=path.removesuffix("/Resource"),
            type=body["Type"],
            properties=body.get("Properties", {}),
            metadata=metadata,
        )


def _scope_of(template: Template) -> Scope:
    return Scope(
        stack=template.stack,
        stack_name=str(template.body["StackName"]),
        region=template.region,
        account=template.account,
        template=template.body,
    )
