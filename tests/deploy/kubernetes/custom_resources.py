"""Custom resources as far as we use them: what their operators read, and nothing else.

The schemas of Kubernetes that tests have know none of these. Fields, types and choices are those of
KEDA 2.20, CloudNativePG 1.30, the Prometheus operator 0.93, External Secrets 2 and cert-manager 1.21;
one that is not here is refused.
"""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from tests.deploy.kubernetes.manifests import Manifest

Duration = Annotated[str, StringConstraints(pattern=r"^([0-9]+(ms|s|m|h))+$")]
Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")]
# What KEDA hands to a trigger is text, whatever it stands for.
Number = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?$")]
Truth = Literal["true", "false"]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)  # type: ignore[pydantic-alias]


class _Metadata(_Strict):
    name: Name
    namespace: Name
    labels: dict[str, str]
    annotations: dict[str, str] = {}


class _Selector(_Strict):
    match_labels: dict[str, str] = Field(min_length=1)


class _Resources(_Strict):
    requests: dict[Literal["cpu", "memory"], Quantity]
    limits: dict[Literal["cpu", "memory"], Quantity]


# KEDA


class _Target(_Strict):
    api_version: Literal["apps/v1"]
    kind: Literal["Deployment"]
    name: Name


class _PrometheusMetadata(_Strict):
    server_address: Annotated[str, StringConstraints(pattern=r"^https?://[a-z0-9.-]+(:\d+)?$")]
    query: str
    threshold: Number
    ignore_null_values: Truth


class _PrometheusTrigger(_Strict):
    type: Literal["prometheus"]
    name: Name
    metric_type: Literal["AverageValue", "Value"]
    metadata: _PrometheusMetadata


class _CpuMetadata(_Strict):
    value: Number


class _CpuTrigger(_Strict):
    type: Literal["cpu"]
    name: Name
    metric_type: Literal["Utilization", "AverageValue"]
    metadata: _CpuMetadata


_Trigger = Annotated[_PrometheusTrigger | _CpuTrigger, Field(discriminator="type")]


class _Fallback(_Strict):
    failure_threshold: int = Field(ge=0)
    replicas: int = Field(ge=0)
    behavior: Literal[
        "static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"
    ]


class _ScalingPolicy(_Strict):
    type: Literal["Pods", "Percent"]
    value: int = Field(ge=1)
    period_seconds: int = Field(ge=1, le=1800)


class _ScalingRules(_Strict):
    stabilization_window_seconds: int = Field(ge=0, le=3600)
    policies: list[_ScalingPolicy] = []


class _Behavior(_Strict):
    scale_up: _ScalingRules | None = None
    scale_down: _ScalingRules | None = None


class _HpaConfig(_Strict):
    behavior: _Behavior


class _Advanced(_Strict):
    horizontal_pod_autoscaler_config: _HpaConfig


class _ScaledObjectSpec(_Strict):
    scale_target_ref: _Target
    polling_interval: int = Field(ge=1)
    min_replica_count: int = Field(ge=1)
    max_replica_count: int = Field(ge=1)
    fallback: _Fallback
    advanced: _Advanced
    triggers: list[_Trigger] = Field(min_length=1)

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.min_replica_count > self.max_replica_count:
            raise ValueError("minReplicaCount must not be above maxReplicaCount")
        # What a fallback needs: a trigger that can fail, and an average to answer with.
        asked = [its for its in self.triggers if its.type != "cpu"]
        if not asked or any(its.metric_type != "AverageValue" for its in asked):
            raise ValueError("fallback needs triggers with an AverageValue")
        if len({its.name for its in self.triggers}) != len(self.triggers):
            raise ValueError("two triggers have one name")
        return self


class ScaledObject(_Strict):
    """What KEDA scales, by what."""

    api_version: Literal["keda.sh/v1alpha1"]
    kind: Literal["ScaledObject"]
    metadata: _Metadata
    spec: _ScaledObjectSpec


# CloudNativePG


class _LocalName(_Strict):
    name: Name


class _InitDb(_Strict):
    database: str
    owner: str
    secret: _LocalName
    encoding: str
    locale_collate: str
    locale_c_type: str


class _Bootstrap(_Strict):
    initdb: _InitDb


class _Role(_Strict):
    name: str
    ensure: Literal["present", "absent"]
    login: bool
    in_roles: list[str] = []
    password_secret: _LocalName | None = None


class _Managed(_Strict):
    roles: list[_Role]


class _Synchronous(_Strict):
    method: Literal["any", "first"]
    number: int = Field(ge=1)
    data_durability: Literal["required", "preferred"]
    failover_quorum: bool


class _Postgresql(_Strict):
    synchronous: _Synchronous
    # A number without quotes would be refused.
    parameters: dict[str, str]


class _Affinity(_Strict):
    enable_pod_anti_affinity: bool
    pod_anti_affinity_type: Literal["preferred", "required"]
    topology_key: str


class _InheritedMetadata(_Strict):
    labels: dict[str, str]


class _Storage(_Strict):
    size: Quantity


class _ClusterSpec(_Strict):
    instances: int = Field(ge=1)
    image_name: str
    inherited_metadata: _InheritedMetadata
    bootstrap: _Bootstrap
    managed: _Managed
    postgresql: _Postgresql
    affinity: _Affinity
    primary_update_strategy: Literal["unsupervised", "supervised"]
    primary_update_method: Literal["switchover", "restart"]
    storage: _Storage
    wal_storage: _Storage
    resources: _Resources

    @model_validator(mode="after")
    def _has_a_standby_for_every_copy(self) -> Self:
        if self.postgresql.synchronous.number >= self.instances:
            raise ValueError("synchronous.number must be below instances")
        return self


class Cluster(_Strict):
    """A Postgres with its standbys."""

    api_version: Literal["postgresql.cnpg.io/v1"]
    kind: Literal["Cluster"]
    metadata: _Metadata
    spec: _ClusterSpec


# The Prometheus operator


class _Endpoint(_Strict):
    port: Name
    path: str
    interval: Duration
    scrape_timeout: Duration


class _ServiceMonitorSpec(_Strict):
    job_label: str
    selector: _Selector
    endpoints: list[_Endpoint] = Field(min_length=1)


class ServiceMonitor(_Strict):
    """Which pods behind which Service are scraped."""

    api_version: Literal["monitoring.coreos.com/v1"]
    kind: Literal["ServiceMonitor"]
    metadata: _Metadata
    spec: _ServiceMonitorSpec


class _PodEndpoint(_Strict):
    port: Name


class _PodMonitorSpec(_Strict):
    selector: _Selector
    pod_metrics_endpoints: list[_PodEndpoint] = Field(min_length=1)


class PodMonitor(_Strict):
    """Which pods are scraped."""

    api_version: Literal["monitoring.coreos.com/v1"]
    kind: Literal["PodMonitor"]
    metadata: _Metadata
    spec: _PodMonitorSpec


class _Rule(_Strict):
    alert: str
    expr: str
    for_: Duration | None = Field(default=None, alias="for")
    labels: dict[str, str]
    annotations: dict[str, str]


class _Group(_Strict):
    name: str
    rules: list[_Rule]


class _PrometheusRuleSpec(_Strict):
    groups: list[_Group] = Field(min_length=1)


class PrometheusRule(_Strict):
    """Alarms."""

    api_version: Literal["monitoring.coreos.com/v1"]
    kind: Literal["PrometheusRule"]
    metadata: _Metadata
    spec: _PrometheusRuleSpec


# External Secrets and cert-manager


class _StoreRef(_Strict):
    name: Name
    kind: Literal["ClusterSecretStore", "SecretStore"]


class _TemplateMetadata(_Strict):
    labels: dict[str, str]


class _Template(_Strict):
    metadata: _TemplateMetadata


class _SecretTarget(_Strict):
    name: Name
    creation_policy: Literal["Owner", "Orphan", "Merge", "None"]
    deletion_policy: Literal["Delete", "Merge", "Retain"]
    template: _Template | None = None


class _RemoteRef(_Strict):
    key: str = Field(min_length=1)
    property: str = Field(min_length=1)


class _SecretData(_Strict):
    secret_key: str = Field(min_length=1)
    remote_ref: _RemoteRef


class _ExternalSecretSpec(_Strict):
    refresh_interval: Duration
    secret_store_ref: _StoreRef
    target: _SecretTarget
    data: list[_SecretData] = Field(min_length=1)


class ExternalSecret(_Strict):
    """A Secret that is read from a store."""

    api_version: Literal["external-secrets.io/v1"]
    kind: Literal["ExternalSecret"]
    metadata: _Metadata
    spec: _ExternalSecretSpec


class _IssuerRef(_Strict):
    name: Name
    kind: Literal["ClusterIssuer", "Issuer"]


class _PrivateKey(_Strict):
    algorithm: Literal["RSA", "ECDSA", "Ed25519"]
    size: int
    rotation_policy: Literal["Always", "Never"]


class _CertificateSpec(_Strict):
    secret_name: Name
    dns_names: list[str] = Field(min_length=1)
    issuer_ref: _IssuerRef
    private_key: _PrivateKey
    usages: list[str]


class Certificate(_Strict):
    """A certificate that is renewed in a Secret."""

    api_version: Literal["cert-manager.io/v1"]
    kind: Literal["Certificate"]
    metadata: _Metadata
    spec: _CertificateSpec


_MODELS: Final[dict[str, type[BaseModel]]] = {
    its.__name__: its
    for its in (
        ScaledObject,
        Cluster,
        ServiceMonitor,
        PodMonitor,
        PrometheusRule,
        ExternalSecret,
        Certificate,
    )
}


def is_custom(manifest: Manifest) -> bool:
    """Return whether it is a resource that some operator brings, not Kubernetes."""
    group = manifest["apiVersion"].partition("/")[0]
    return "." in group and not group.endswith("k8s.io")


def validate(manifest: Manifest) -> Any:  # noqa: ANN401 - whichever it is
    """Return it as its model.

    Raises:
        KeyError: There is no model for it.
        ValidationError: Its operator would refuse it, or not know a field of it.
    """
    return _MODELS[manifest["kind"]].model_validate(manifest)
