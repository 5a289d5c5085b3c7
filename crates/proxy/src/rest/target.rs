//! Request targets: path segments and query pairs, percent-decoded.

/// A request's path and query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Target {
    /// Decoded one by one, so that a name may hold slashes.
    pub(super) segments: Vec<String>,
    pub(super) query: Vec<(String, String)>,
}

impl Target {
    /// Takes a target apart; `None` if an escape is broken.
    pub(super) fn parse(target: &str) -> Option<Self> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.strip_prefix('/')?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let segments = path.split('/').map(|segment| decode(segment, false)).collect::<Option<_>>()?;
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let query = pairs
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                Some((decode(key, true)?, decode(value, true)?))
            })
            .collect::<Option<_>>()?;
        Some(Self { segments, query })
    }

    /// The first value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Whether a switch is on: only `true` is.
    pub(super) fn is(&self, key: &str) -> bool {
        self.get(key) == Some("true")
    }
}

fn decode(text: &str, plus: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        match first {
            b'%' => {
                let (digits, tail) = rest.split_at_checked(2)?;
                rest = tail;
                bytes.push(hex(digits[0])? * 16 + hex(digits[1])?);
            }
            b'+' if plus => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_slashes_and_spaces() {
        let target = Target::parse("/api/v1/rules/a%2Fb%20c?recursive=true&x").unwrap();
        assert_eq!(target.segments, ["api", "v1", "rules", "a/b c"]);
        assert!(target.is("recursive") && !target.is("x"));
        assert_eq!(Target::parse("/api/v1/rules/").unwrap().segments, ["api", "v1", "rules"]);
    }

    #[test]
    fn a_plus_is_a_space_in_a_query_and_itself_in_a_path() {
        let target = Target::parse("/rules/a+b?owner=a+b%2B").unwrap();
        assert_eq!((target.segments[1].as_str(), target.get("owner")), ("a+b", Some("a b+")));
    }

    #[test]
    fn only_true_is_true() {
        assert!(!Target::parse("/a?recursive=1").unwrap().is("recursive"));
        assert!(!Target::parse("/a?recursive=True").unwrap().is("recursive"));
    }

    #[test]
    fn broken_escapes_are_no_target() {
        for target in ["/%", "/%2", "/%zz", "/%ff", "x"] {
            assert_eq!(Target::parse(target), None, "{target}");
        }
    }
}
