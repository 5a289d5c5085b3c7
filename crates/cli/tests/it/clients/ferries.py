"""What the operator of `operator.py` makes of Ferries. It runs meanwhile, as a process of its own."""

import time
import unittest

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

NAMESPACE = "default"
PLACE = ("example.dev", "v1", NAMESPACE, "ferries")
PATIENCE = 120


class Ferries(unittest.TestCase):
    def setUp(self):
        config.load_kube_config()
        self.core = client.CoreV1Api()
        self.ferries = client.CustomObjectsApi()

    def ferry(self, name):
        return read(lambda: self.ferries.get_namespaced_custom_object(*PLACE, name))

    def data(self, name):
        found = read(lambda: self.core.read_namespaced_config_map(name, NAMESPACE))
        return found and found.data

    def until(self, what, reading, expected):
        end = time.monotonic() + PATIENCE
        while (found := reading()) != expected:
            self.assertLess(time.monotonic(), end, f"waited in vain until {what}: it is {found}")
            time.sleep(0.05)

    def create(self, name, seats):
        body = {"apiVersion": "example.dev/v1", "kind": "Ferry", "metadata": {"name": name}, "spec": {"seats": seats}}
        self.ferries.create_namespaced_custom_object(*PLACE, body)
        self.until("the status says so", lambda: self.ferry(name).get("status", {}).get("phase"), "Sailing")

    def test_a_created_object_gets_a_child_a_finalizer_and_a_status_after_a_retry(self):
        self.create("first", 4)
        self.until("the second attempt is recorded", lambda: self.ferry("first")["status"].get("created"), {"attempts": 2})
        self.assertEqual(self.ferry("first")["metadata"]["finalizers"], ["example.dev/ferries"])
        self.assertEqual(self.data("timetable-first"), {"seats": "4"})

    def test_a_changed_field_reaches_the_child_and_the_status(self):
        self.create("second", 4)
        self.ferries.patch_namespaced_custom_object(*PLACE, "second", {"spec": {"seats": 6}})
        self.until("the child follows", lambda: self.data("timetable-second"), {"seats": "6"})
        self.until("the status follows", lambda: self.ferry("second")["status"].get("seats"), 6)

    def test_a_deleted_object_is_gone_once_its_handler_ran_and_takes_its_child_with_it(self):
        self.create("third", 4)
        self.ferries.delete_namespaced_custom_object(*PLACE, "third")
        self.until("the object is gone", lambda: self.ferry("third"), None)
        self.assertEqual(self.data("logbook-third"), {"last": "sold"}, "the handler ran before")
        self.until("the child is gone", lambda: self.data("timetable-third"), None)

    def test_events_of_built_in_objects_arrive_and_are_answered_with_a_patch(self):
        body = {"metadata": {"name": "passenger", "labels": {"ferry": "any"}}, "data": {"name": "Ada"}}
        self.core.create_namespaced_config_map(NAMESPACE, body)
        self.until("it has boarded", lambda: self.data("passenger"), {"name": "Ada", "boarded": "any"})

    def test_events_that_a_handler_reports_are_recorded(self):
        self.create("fourth", 2)

        def reported():
            found = self.core.list_namespaced_event(NAMESPACE, field_selector="involvedObject.name=fourth").items
            return [(event.type, event.reason, event.message) for event in found]

        self.until("the event is there", reported, [("Normal", "Sailing", "the timetable is out")])


def read(what):
    """What a read finds; None when it is answered with 404."""
    try:
        return what()
    except ApiException as error:
        if error.status == 404:
            return None
        raise


if __name__ == "__main__":
    unittest.main(verbosity=2)
