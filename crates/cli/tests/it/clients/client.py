"""The published Python client against `portolan up`: each test is one thing that scripts and operators do with it."""

import json
import time
import unittest

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException

NAMESPACE = "python"
FERRY = {"apiVersion": "example.dev/v1", "kind": "Ferry"}
# longer than any step takes on a busy machine; whatever waits ends with the event that it waits for
PATIENCE = 120


def setUpModule():
    config.load_kube_config()
    client.CoreV1Api().create_namespace({"metadata": {"name": NAMESPACE}})


def config_map(name, data=None, **metadata):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, **metadata), data=data or {})


class Objects(unittest.TestCase):
    def setUp(self):
        self.core = client.CoreV1Api()

    def refused(self, status, reason):
        """The block ends in an ApiException with this status code and reason."""
        return Refused(self, status, reason)

    def test_what_is_created_is_read_and_listed_by_label_field_and_page(self):
        for number in range(5):
            labels = {"set": "listed", "parity": "odd" if number % 2 else "even"}
            made = self.core.create_namespaced_config_map(
                NAMESPACE, config_map(f"listed-{number}", {"number": str(number)}, labels=labels)
            )
            self.assertTrue(made.metadata.uid and made.metadata.resource_version and made.metadata.creation_timestamp)
        read = self.core.read_namespaced_config_map("listed-3", NAMESPACE)
        self.assertEqual(read.data, {"number": "3"})

        def names(**selection):
            found = self.core.list_namespaced_config_map(NAMESPACE, **selection)
            return [item.metadata.name for item in found.items]

        self.assertEqual(names(label_selector="set=listed,parity!=odd"), ["listed-0", "listed-2", "listed-4"])
        self.assertEqual(names(field_selector="metadata.name=listed-1"), ["listed-1"])
        pages, more = [], None
        while True:
            page = self.core.list_namespaced_config_map(NAMESPACE, label_selector="set=listed", limit=2, _continue=more)
            pages.append([item.metadata.name for item in page.items])
            more = page.metadata._continue
            if not more:
                break
        self.assertEqual(pages, [["listed-0", "listed-1"], ["listed-2", "listed-3"], ["listed-4"]])
        everywhere = self.core.list_config_map_for_all_namespaces(label_selector="set=listed")
        self.assertEqual(len(everywhere.items), 5)

    def test_every_patch_type_is_applied_as_its_kind_says(self):
        ports = [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]
        self.core.create_namespaced_service(
            NAMESPACE, {"metadata": {"name": "patched", "labels": {"kept": "yes"}}, "spec": {"ports": ports}}
        )

        def patch(body, kind, **more):
            return self.core.patch_namespaced_service("patched", NAMESPACE, body, _content_type=kind, **more)

        port = {"spec": {"ports": [{"port": 80, "name": "web"}]}}
        strategic = patch(port, "application/strategic-merge-patch+json")
        self.assertEqual({port.name: port.port for port in strategic.spec.ports}, {"web": 80, "dns": 53})
        merge = patch(port, "application/merge-patch+json")
        self.assertEqual([port.name for port in merge.spec.ports], ["web"])
        operations = [
            {"op": "test", "path": "/metadata/labels/kept", "value": "yes"},
            {"op": "add", "path": "/metadata/labels/added", "value": "yes"},
        ]
        # a list is a JSON patch, without a word about it
        json_patch = self.core.patch_namespaced_service("patched", NAMESPACE, operations)
        self.assertEqual(json_patch.metadata.labels, {"kept": "yes", "added": "yes"})
        applied = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "patched", "labels": {"applied": "yes"}},
        }
        apply = patch(applied, "application/apply-patch+yaml", field_manager="python")
        self.assertEqual(apply.metadata.labels, {"kept": "yes", "added": "yes", "applied": "yes"})
        del applied["metadata"]["labels"]
        again = patch(applied, "application/apply-patch+yaml", field_manager="python")
        self.assertEqual(again.metadata.labels, {"kept": "yes", "added": "yes"})
        with self.refused(422, "Invalid"):
            patch([{"op": "test", "path": "/metadata/labels/kept", "value": "no"}], "application/json-patch+json")

    def test_server_side_apply_refuses_the_field_of_another_manager_until_forced(self):
        resources = dynamic.DynamicClient(client.ApiClient())
        config_maps = resources.resources.get(api_version="v1", kind="ConfigMap")

        def apply(value, manager, **more):
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "owned", "namespace": NAMESPACE},
                "data": {"key": value},
            }
            return config_maps.server_side_apply(body=body, field_manager=manager, **more)

        self.assertEqual(apply("one", "first").data.key, "one")
        with self.refused(409, "Conflict") as refused:
            apply("two", "second")
        self.assertIn('"first"', refused.body["message"])
        self.assertEqual(refused.body["details"]["causes"][0]["field"], ".data.key")
        self.assertEqual(apply("two", "second", force_conflicts=True).data.key, "two")
        managers = self.core.read_namespaced_config_map("owned", NAMESPACE).metadata.managed_fields
        self.assertEqual([(one.manager, one.operation) for one in managers if one.fields_v1.get("f:data")], [("second", "Apply")])

    def test_a_watch_from_a_resource_version_has_every_later_change_in_order(self):
        start = self.core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
        self.core.create_namespaced_config_map(NAMESPACE, config_map("watched", {"step": "1"}))
        self.core.patch_namespaced_config_map("watched", NAMESPACE, {"data": {"step": "2"}})
        self.core.delete_namespaced_config_map("watched", NAMESPACE)
        seen, stream = [], watch.Watch()
        for event in stream.stream(
            self.core.list_namespaced_config_map,
            NAMESPACE,
            field_selector="metadata.name=watched",
            resource_version=start,
            timeout_seconds=PATIENCE,
        ):
            self.assertIsInstance(event["object"], client.V1ConfigMap)
            seen.append((event["type"], event["object"].data["step"]))
            if event["type"] == "DELETED":
                stream.stop()
        self.assertEqual(seen, [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")])

    def test_errors_have_the_status_and_the_reason_of_kubernetes(self):
        with self.refused(404, "NotFound") as refused:
            self.core.read_namespaced_config_map("nowhere", NAMESPACE)
        self.assertEqual(refused.body["details"], {"name": "nowhere", "kind": "configmaps"})
        with self.refused(404, "NotFound"):
            self.core.create_namespaced_config_map("no-such-namespace", config_map("lost"))
        made = self.core.create_namespaced_config_map(NAMESPACE, config_map("once"))
        with self.refused(409, "AlreadyExists"):
            self.core.create_namespaced_config_map(NAMESPACE, config_map("once"))
        self.core.patch_namespaced_config_map("once", NAMESPACE, {"data": {"changed": "meanwhile"}})
        with self.refused(409, "Conflict"):
            self.core.replace_namespaced_config_map("once", NAMESPACE, made)
        with self.refused(422, "Invalid") as refused:
            self.core.create_namespaced_config_map(NAMESPACE, config_map("Not_A_Name"))
        self.assertEqual(refused.body["details"]["causes"][0]["field"], "metadata.name")
        with self.refused(400, "BadRequest"):
            self.core.list_namespaced_config_map(NAMESPACE, label_selector="a in")
        stranger = client.Configuration.get_default_copy()
        stranger.cert_file = stranger.key_file = None
        stranger.api_key = {"authorization": "Bearer wrong"}
        with self.refused(401, "Unauthorized"):
            client.CoreV1Api(client.ApiClient(stranger)).list_namespace()

    def test_a_finalizer_holds_a_deleted_object_and_owners_take_their_own_with_them(self):
        held = self.core.create_namespaced_config_map(NAMESPACE, config_map("held", finalizers=["example.dev/held"]))
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "held", "uid": held.metadata.uid}
        owned = config_map("owned-by-held", owner_references=[owner])
        self.core.create_namespaced_config_map(NAMESPACE, owned)
        self.core.delete_namespaced_config_map("held", NAMESPACE)
        held = self.core.read_namespaced_config_map("held", NAMESPACE)
        self.assertIsNotNone(held.metadata.deletion_timestamp)
        self.core.patch_namespaced_config_map("held", NAMESPACE, [{"op": "remove", "path": "/metadata/finalizers"}])
        with self.refused(404, "NotFound"):
            self.core.read_namespaced_config_map("held", NAMESPACE)
        wait_until_gone(lambda: self.core.read_namespaced_config_map("owned-by-held", NAMESPACE))

    def test_a_collection_is_deleted_by_label(self):
        for number in range(3):
            self.core.create_namespaced_secret(
                NAMESPACE,
                {"metadata": {"name": f"one-of-{number}", "labels": {"set": "of"}}, "stringData": {"key": "value"}},
            )
        kept = self.core.create_namespaced_secret(NAMESPACE, {"metadata": {"name": "another"}, "stringData": {"a": "b"}})
        self.assertEqual(kept.data, {"a": "Yg=="})
        self.core.delete_collection_namespaced_secret(NAMESPACE, label_selector="set=of")
        left = [secret.metadata.name for secret in self.core.list_namespaced_secret(NAMESPACE).items]
        self.assertEqual(left, ["another"])

    def test_a_file_of_a_deployment_and_a_service_runs_and_is_scaled(self):
        labels = {"app": "web"}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "web", "image": "example.dev/web:1"}]},
                },
            },
        }
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": labels, "ports": [{"port": 80}]},
        }
        utils.create_from_yaml(client.ApiClient(), yaml_objects=[deployment, service], namespace=NAMESPACE)
        apps = client.AppsV1Api()
        wait_for_replicas(apps, 2)
        pods = self.core.list_namespaced_pod(NAMESPACE, label_selector="app=web").items
        self.assertEqual([pod.status.phase for pod in pods], ["Running", "Running"])
        self.assertEqual(len({pod.status.pod_ip for pod in pods}), 2)
        scale = apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 3}})
        self.assertEqual(scale.spec.replicas, 3)
        wait_for_replicas(apps, 3)
        self.assertTrue(self.core.read_namespaced_service("web", NAMESPACE).spec.cluster_ip)
        with self.refused(501, None):
            self.core.read_namespaced_pod_log(pods[0].metadata.name, NAMESPACE)

    def test_who_asks_is_told_who_that_is_and_what_is_served(self):
        self.assertTrue(client.VersionApi().get_code().git_version.startswith("v1."))
        groups = [group.name for group in client.ApisApi().get_api_versions().groups]
        self.assertIn("apps", groups)
        review = {"spec": {"resourceAttributes": {"verb": "create", "resource": "configmaps", "namespace": NAMESPACE}}}
        self.assertTrue(client.AuthorizationV1Api().create_self_subject_access_review(review).status.allowed)
        me = client.AuthenticationV1Api().create_self_subject_review(client.V1SelfSubjectReview())
        self.assertTrue(me.status.user_info.username)

    def test_custom_objects_have_a_schema_a_status_and_a_scale(self):
        install_ferries()
        ferries = client.CustomObjectsApi()
        place = ("example.dev", "v1", NAMESPACE, "ferries")
        with self.refused(422, "Invalid") as refused:
            ferries.create_namespaced_custom_object(
                *place, {**FERRY, "metadata": {"name": "wrong"}, "spec": {"seats": 0}}
            )
        self.assertEqual(refused.body["details"]["causes"][0]["field"], "spec.seats")
        made = ferries.create_namespaced_custom_object(*place, {**FERRY, "metadata": {"name": "one"}, "spec": {"seats": 4}})
        self.assertEqual(made["spec"], {"seats": 4, "colour": "white"}, "the default is filled in")
        ferries.patch_namespaced_custom_object(*place, "one", {"spec": {"seats": 8}, "status": {"sold": 1}})
        ferries.patch_namespaced_custom_object_status(*place, "one", {"spec": {"seats": 9}, "status": {"sold": 2}})
        read = ferries.get_namespaced_custom_object(*place, "one")
        self.assertEqual((read["spec"]["seats"], read["status"], read["metadata"]["generation"]), (8, {"sold": 2}, 2))
        scale = ferries.get_namespaced_custom_object_scale(*place, "one")
        self.assertEqual((scale["spec"]["replicas"], scale["status"]["replicas"]), (8, 2))
        listed = ferries.list_cluster_custom_object("example.dev", "v1", "ferries")
        self.assertEqual([item["metadata"]["name"] for item in listed["items"]], ["one"])
        ferries.delete_namespaced_custom_object(*place, "one")
        with self.refused(404, "NotFound"):
            ferries.get_namespaced_custom_object(*place, "one")


class Refused:
    """Expects an ApiException; afterwards `body` is the Status that came with it."""

    def __init__(self, test, status, reason):
        self.test, self.status, self.reason, self.body = test, status, reason, None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _trace):
        self.test.assertIsNotNone(error, f"it was accepted, and {self.status} {self.reason} was expected")
        if not isinstance(error, (ApiException, dynamic.exceptions.DynamicApiError)):
            return False
        self.body = json.loads(error.body)
        self.test.assertEqual((error.status, self.body["code"], self.body["kind"]), (self.status, self.status, "Status"))
        if self.reason:
            self.test.assertEqual(self.body["reason"], self.reason)
        return True


def install_ferries():
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "seats": {"type": "integer", "minimum": 1},
                    "colour": {"type": "string", "default": "white"},
                },
            },
            "status": {"type": "object", "properties": {"sold": {"type": "integer"}}},
        },
    }
    scale = {"specReplicasPath": ".spec.seats", "statusReplicasPath": ".status.sold"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    }
    names = {"plural": "ferries", "singular": "ferry", "kind": "Ferry"}
    extensions = client.ApiextensionsV1Api()
    extensions.create_custom_resource_definition(
        {
            "metadata": {"name": "ferries.example.dev"},
            "spec": {"group": "example.dev", "scope": "Namespaced", "names": names, "versions": [version]},
        }
    )
    stream = watch.Watch()
    for event in stream.stream(
        extensions.list_custom_resource_definition,
        field_selector="metadata.name=ferries.example.dev",
        timeout_seconds=PATIENCE,
    ):
        conditions = event["object"].status.conditions or []
        if any(condition.type == "Established" and condition.status == "True" for condition in conditions):
            return stream.stop()
    raise AssertionError("the kind is not established")


def wait_for_replicas(apps, count):
    stream = watch.Watch()
    for event in stream.stream(
        apps.list_namespaced_deployment, NAMESPACE, field_selector="metadata.name=web", timeout_seconds=PATIENCE
    ):
        if event["object"].status.available_replicas == count:
            return stream.stop()
    raise AssertionError(f"the Deployment never had {count} available replicas")


def wait_until_gone(read):
    """Repeats a read, each of which is a request, until it is answered with 404."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            read()
        except ApiException as error:
            if error.status == 404:
                return
            raise
        time.sleep(0.05)
    raise AssertionError("it is still there")


if __name__ == "__main__":
    unittest.main(verbosity=2)
