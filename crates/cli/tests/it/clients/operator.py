"""An operator as one writes it with kopf: it keeps a ConfigMap, the timetable, for each Ferry."""

import kopf
from kubernetes import client, config


@kopf.on.startup()
def log_in(settings: kopf.OperatorSettings, **_):
    config.load_kube_config()
    settings.persistence.finalizer = "example.dev/ferries"


@kopf.on.create("example.dev", "v1", "ferries")
def created(body, spec, name, namespace, patch, retry, **_):
    if retry == 0:
        # kopf records the failed attempt in the object, and calls again
        raise kopf.TemporaryError("the harbour opens in a moment", delay=0.1)
    timetable = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"timetable-{name}"},
        "data": {"seats": str(spec["seats"])},
    }
    kopf.adopt(timetable)
    client.CoreV1Api().create_namespaced_config_map(namespace, timetable)
    kopf.info(body, reason="Sailing", message="the timetable is out")
    patch.status["phase"] = "Sailing"
    return {"attempts": retry + 1}


@kopf.on.field("example.dev", "v1", "ferries", field="spec.seats")
def seats_changed(old, new, name, namespace, patch, **_):
    if old is None:
        return
    client.CoreV1Api().patch_namespaced_config_map(f"timetable-{name}", namespace, {"data": {"seats": str(new)}})
    patch.status["seats"] = new


@kopf.on.delete("example.dev", "v1", "ferries")
def deleted(name, namespace, **_):
    logbook = {"metadata": {"name": f"logbook-{name}"}, "data": {"last": "sold"}}
    client.CoreV1Api().create_namespaced_config_map(namespace, logbook)


@kopf.on.event("", "v1", "configmaps", labels={"ferry": kopf.PRESENT})
def passenger(event, labels, namespace, patch, **_):
    if event["type"] == "ADDED":
        patch.setdefault("data", {})["boarded"] = labels["ferry"]
