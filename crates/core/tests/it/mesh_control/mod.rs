//! The mesh's control plane: dialects, the numbered requirements, the document's examples, and laws.

mod build;
mod calls;
mod dialects;
mod examples;
mod explain;
mod growth;
mod laws;
mod proxy;
mod requirements;
mod safety;
mod shipped;
mod told;
mod worlds;
