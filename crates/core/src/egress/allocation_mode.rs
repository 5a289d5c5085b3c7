//! How an address of the pool is chosen for a policy that names none. All that sets the modes apart stands here.

use std::fmt;

use super::types::{Eip, Unmet};

/// How many policies share an address with `Limit`, unless the policy gives a number.
const DEFAULT_LIMIT: u16 = 5;

/// How an address of the pool is chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AllocationMode {
    /// The gateway's default address.
    #[default]
    Default,
    /// Any address of the pool, used or not.
    Random,
    /// The lowest unused address; any address when all are used.
    PreferUnallocated,
    /// The most used address with fewer than this many policies.
    Limit(u16),
}

/// What a pool offers to a policy.
pub(super) trait Offers {
    fn default_address(&self) -> Result<Eip, Unmet>;
    fn lowest_unused(&self) -> Option<Eip>;
    fn most_used_below(&self, limit: u16) -> Option<Eip>;
    fn any(&self) -> Result<Eip, Unmet>;
}

impl AllocationMode {
    /// The words that [`Self::parse`] knows.
    pub const WORDS: &str = "default, rr, Random, PreferUnallocated, Limit";

    /// The mode of a word on the wire, in upper or lower case; the empty word is the default mode.
    pub fn parse(word: &str, limit: Option<u16>) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "default" | "" => Self::Default,
            "rr" | "preferunallocated" => Self::PreferUnallocated,
            "random" => Self::Random,
            "limit" => Self::Limit(limit.unwrap_or(DEFAULT_LIMIT).max(1)),
            _ => return None,
        })
    }

    pub(super) fn choose(self, pool: &impl Offers) -> Result<Eip, Unmet> {
        match self {
            Self::Default => pool.default_address(),
            Self::Random => pool.any(),
            Self::PreferUnallocated => pool.lowest_unused().map_or_else(|| pool.any(), Ok),
            Self::Limit(limit) => {
                pool.most_used_below(limit).or_else(|| pool.lowest_unused()).map_or_else(|| pool.any(), Ok)
            }
        }
    }

    /// True if it asks for the most used address, which needs an index that other modes do without.
    pub(super) const fn needs_user_counts(self) -> bool {
        matches!(self, Self::Limit(_))
    }
}

/// What is chosen.
impl fmt::Display for AllocationMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default address of the gateway"),
            Self::Random => f.write_str("any address of the pool"),
            Self::PreferUnallocated => f.write_str("the lowest unused address, or any address when all are used"),
            Self::Limit(limit) => write!(f, "the most used address with fewer than {limit} policies"),
        }
    }
}

#[test]
fn words_ignore_case_and_limits_default_to_five() {
    let mode = |word| AllocationMode::parse(word, None);
    assert_eq!(mode(""), Some(AllocationMode::Default));
    assert_eq!(mode("RR"), Some(AllocationMode::PreferUnallocated));
    assert_eq!(mode("random"), Some(AllocationMode::Random));
    assert_eq!(mode("LIMIT"), Some(AllocationMode::Limit(5)));
    assert_eq!(AllocationMode::parse("Limit", Some(9)), Some(AllocationMode::Limit(9)));
    assert_eq!(mode("whatever"), None);
    for word in AllocationMode::WORDS.split(", ") {
        assert!(mode(word).is_some(), "{word}");
    }
}
