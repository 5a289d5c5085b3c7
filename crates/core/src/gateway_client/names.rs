//! Names of load balancers: the same for the same Service at any time, different for any other cluster or Service, and
//! recognisable as those of one cluster.
//!
//! `SERVICE-CCCCCCCCCCSSSSSSSSSS`: as much of the Service's name as fits, ten letters for the cluster and ten for the
//! Service, 50 bits each.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::types::ServiceName;

/// The longest DNS label.
const LONGEST: usize = 63;
/// Letters of each hash.
const LETTERS: usize = 10;
/// Letters of both hashes, and the dash before them.
const SUFFIX: usize = 2 * LETTERS + 1;

/// What the names of one cluster's load balancers have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterKey {
    id: Arc<str>,
    letters: Arc<str>,
}

/// Name of a load balancer at the gateway.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LbName(Arc<str>);

impl ClusterKey {
    /// The key of the cluster with this id.
    pub fn new(id: &str) -> Self {
        Self { id: id.into(), letters: letters(&["cluster", id]).into() }
    }

    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name of a Service's load balancer.
    pub fn name(&self, ServiceName { namespace, name }: &ServiceName) -> LbName {
        let service = letters(&["service", &self.id, namespace, name]);
        let shown = &name[..name.floor_char_boundary(LONGEST - SUFFIX)];
        let shown = shown.trim_end_matches('-');
        LbName(format!("{shown}-{}{service}", self.letters).into())
    }

    /// Whether a load balancer of this name was made for this cluster.
    pub fn owns(&self, name: &str) -> bool {
        let Some((_, suffix)) = name.rsplit_once('-') else { return false };
        suffix.len() == 2 * LETTERS && suffix.starts_with(&*self.letters)
    }

    /// A name that the gateway lists, if it was made for this cluster.
    pub fn listed(&self, name: &str) -> Option<LbName> {
        self.owns(name).then(|| LbName(name.into()))
    }
}

impl LbName {
    /// As the gateway spells it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LbName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Ten letters and digits for these words.
fn letters(words: &[&str]) -> String {
    let mut hash = Sha256::new();
    for word in words {
        hash.update(u64::try_from(word.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(word.as_bytes());
    }
    let alphabet = b"abcdefghijklmnopqrstuvwxyz234567";
    // the low five bits of a byte are a letter
    hash.finalize().iter().take(LETTERS).map(|byte| char::from(alphabet[usize::from(byte & 31)])).collect()
}
