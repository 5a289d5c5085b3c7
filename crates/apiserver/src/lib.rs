//! The embedded Kubernetes API server: one machine, one process, the rules of the real one.
//!
//! It will hold a multi-version store with watches, the REST surface that kubectl and controllers use, custom
//! resource definitions, and the four patch types. It serves `portolan up` and the tests, and never clusters.
