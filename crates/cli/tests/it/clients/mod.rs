//! Clients that others wrote, as they are published, against `portolan up`: kubectl, Helm, Python's client and kopf.

mod helm;
mod kubectl;
mod python;
