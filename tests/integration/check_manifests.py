"""Checks Kubernetes manifests: against the published schemas, as the "restricted" pod security standard wants them, and
that the binary has the options that they give it.

    check_manifests.py BINARY VERSION FILE...
"""

import re
import subprocess
import sys

import kubernetes_validate
import yaml


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


def unknown_options(binary, command):
    known = subprocess.run([binary, command[1], "--help"], capture_output=True, text=True, check=True).stdout
    for word in command[2:]:
        if word.startswith("--") and not re.search(rf"{word}\b", known):
            yield f"{word} is no option of holdfast {command[1]}"


def problems(binary, version, resource):
    try:
        kubernetes_validate.validate(resource, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{'.'.join(map(str, error.path))}: {error.message}"
    template = resource.get("spec", {}).get("template")
    if template is None:
        return
    yield from restricted(template["spec"])
    for container in template["spec"]["containers"]:
        yield from unknown_options(binary, container["command"])


def main(binary, version, files):
    found = []
    pods = 0
    for file in files:
        with open(file, encoding="utf-8") as text:
            for resource in yaml.safe_load_all(text):
                pods += "template" in resource.get("spec", {})
                name = f"{resource['kind']} {resource['metadata']['name']}"
                found += [f"{file}: {name}: {problem}" for problem in problems(binary, version, resource)]
    print("\n".join(found) or f"no problems; pods {pods}")
    return 1 if found else 0


sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
