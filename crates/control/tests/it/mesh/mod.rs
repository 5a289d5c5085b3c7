//! The mesh with proxies that are processes of their own, each pod on a loopback address of its own.

mod examples;
mod harness;
mod kinds;
mod lab;
mod traffic;
