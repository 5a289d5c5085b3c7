//! The mesh's control plane: dialects, the numbered requirements, the document's examples, and laws.

mod dialects;
