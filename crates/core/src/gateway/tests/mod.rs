//! The whole plan: on single worlds, and carried out by operators with old caches.

mod build;
mod rules;
mod server;
