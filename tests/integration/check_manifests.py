"""Checks Kubernetes manifests: against the published schemas, as the "restricted" pod security standard wants them, that
the binary has the options that they give it, and that what they refer to is there.

    check_manifests.py BINARY VERSIONS FILE...

VERSIONS: of Kubernetes, with commas between them. Says "FILE: no problems; pods 2", or each problem that FILE has.
"""

import functools
import re
import subprocess
import sys

import kubernetes_validate
import yaml
from kubeflow_trainer_api.models import JobsetV1alpha2JobSet
from pydantic import ValidationError


def restricted(pod):
    """What the "restricted" standard (Kubernetes documentation, Pod Security Standards) forbids of a pod's spec."""
    context = pod.get("securityContext", {})
    if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
        yield "may run as root"
    if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "has no seccomp profile"
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield f"has {field}"
    for volume in pod.get("volumes", []):
        kind = set(volume) - {"name"}
        if not kind <= {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}:
            yield f"has a volume of kind {kind}"
        # A secret belongs to root: it is readable through the group only.
        if "secret" in volume and not (context.get("fsGroup") and volume["secret"].get("defaultMode") == 0o440):
            yield f"cannot read the secret {volume['name']}"
    for container in pod["containers"]:
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            yield f"{container['name']} may gain privileges"
        if own.get("capabilities", {}).get("drop") != ["ALL"]:
            yield f"{container['name']} keeps capabilities"
        if any("hostPort" in port for port in container.get("ports", [])):
            yield f"{container['name']} has a port of the host"


@functools.cache
def help_of(binary, command):
    return subprocess.run([binary, command, "--help"], capture_output=True, text=True, check=True).stdout


def unknown_options(binary, command):
    known = help_of(binary, command[1])
    for word in command[2:]:
        if word.startswith("--") and not re.search(rf"{word}\b", known):
            yield f"{word} is no option of holdfast {command[1]}"


REFERENCE = re.compile(r"\$\((\w+)\)")


def unknown_variables(container, config):
    """Of "$(NAME)": an unknown one stays as it is, one in a value has to stand before it."""
    known = set(config) if "envFrom" in container else set()
    for variable in container.get("env", []):
        for name in REFERENCE.findall(variable.get("value", "")):
            if name not in known:
                yield f"$({name}) in {variable['name']} is not known before it"
        known.add(variable["name"])
    for word in container["command"]:
        for name in REFERENCE.findall(word):
            if name not in known:
                yield f"$({name}) in the command is not known"


def schema_problems(version, resource):
    try:
        kubernetes_validate.validate(resource, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{'.'.join(map(str, error.path))}: {error.message}"


# As the descriptions in its schema and the constants of batch/v1 have them.
ACTIONS = {"FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"}
REASONS = {"BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"}


def jobset_problems(jobset):
    """Its jobs aside, which are looked at as such."""
    shell = {**jobset, "spec": {**jobset["spec"]}}
    empty = {"spec": {"template": {"spec": {"containers": []}}}}
    shell["spec"]["replicatedJobs"] = [{**job, "template": empty} for job in jobset["spec"]["replicatedJobs"]]
    try:
        understood = JobsetV1alpha2JobSet.from_dict(shell).to_dict()
    except ValidationError as error:
        yield str(error)
        return
    if understood != shell:  # the classes pass over what they do not know
        yield f"has fields that the schema lacks: of {shell} remains {understood}"
    names = {job["name"] for job in jobset["spec"]["replicatedJobs"]}
    policies = [jobset["spec"]["successPolicy"], *jobset["spec"]["failurePolicy"]["rules"]]
    for policy in policies:
        if not names.issuperset(policy.get("targetReplicatedJobs", [])):
            yield f"{policy} names a job that there is not"
        if policy.get("action", "FailJobSet") not in ACTIONS or not REASONS.issuperset(policy.get("onJobFailureReasons", [])):
            yield f"{policy} has an action or a reason that there is not"


def jobs_of(resource):
    """Whatever starts pods, as Jobs."""
    if resource["kind"] == "JobSet":
        for job in resource["spec"]["replicatedJobs"]:
            yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, **job["template"]}
    elif "template" in resource.get("spec", {}):
        yield resource


def problems(binary, versions, resource, config):
    if resource["kind"] == "JobSet":
        yield from jobset_problems(resource)
    jobs = list(jobs_of(resource))
    for version in versions:
        for validated in jobs or [resource]:
            yield from schema_problems(version, validated)
    for job in jobs:
        pod = job["spec"]["template"]["spec"]
        yield from restricted(pod)
        for container in pod["containers"]:
            yield from unknown_options(binary, container["command"])
            yield from unknown_variables(container, config)


def check(binary, versions, file):
    """Whether all is well; says what is not."""
    with open(file, encoding="utf-8") as text:
        resources = list(yaml.safe_load_all(text))
    config = {key for resource in resources for key in resource.get("data", {})}
    found = []
    for resource in resources:
        name = f"{resource['kind']} {resource['metadata']['name']}"
        found += [f"{file}: {name}: {problem}" for problem in problems(binary, versions, resource, config)]
    print("\n".join(found) or f"{file}: no problems; pods {sum(len(list(jobs_of(resource))) for resource in resources)}")
    return not found


def main(binary, versions, files):
    return 0 if all([check(binary, versions.split(","), file) for file in files]) else 1


sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
