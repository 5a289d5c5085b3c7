//! Plan -> what is written: generated objects through the API server, configuration over the proxies' REST APIs.

pub(super) mod fleet;
pub(super) mod generated;
mod worker;
