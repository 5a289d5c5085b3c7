//! Lines of htpasswd with bcrypt hashes.

/// A hash of an unknown password, for users that do not exist: they must cost what others cost.
const NOBODY: &str = "$2b$10$abcdefghijklmnopqrstuu5Lo0g67CiD3M4RpN1BmBb4Crp5w7dbK";
/// Dearer hashes would hold up everyone's logins.
const DEAREST: u32 = 12;

/// The hash of a user; that of nobody if there is none that can be used.
pub(super) fn hash_of<'a>(file: &'a str, user: &str) -> &'a str {
    let lines = file.lines().filter_map(|line| line.trim().split_once(':'));
    let mut of_user = lines.filter(|(name, _)| *name == user).map(|(_, hash)| hash.trim());
    of_user.next().filter(|hash| is_usable(hash)).unwrap_or(NOBODY)
}

fn is_usable(hash: &str) -> bool {
    let mut parts = hash.split('$').skip(1);
    let is_bcrypt = matches!(parts.next(), Some("2y" | "2a" | "2b"));
    let cost = parts.next().and_then(|cost| cost.parse::<u32>().ok());
    is_bcrypt && cost.is_some_and(|cost| (4..=DEAREST).contains(&cost))
}

/// Takes long: not for threads that others wait for.
pub(super) fn verify(password: &[u8], hash: &str) -> bool {
    bcrypt::verify(password, hash).unwrap_or(false) && hash != NOBODY
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOB: &str = "$2y$04$zVHmKQtGGQob.b/Nc7l9NO8UlrYcW05FiuCj/SxsFO/ZtiN9.mNzy";

    #[test]
    fn users_that_do_not_exist_have_a_hash_that_nothing_matches() {
        let file = format!("# users\nbob:{BOB}\r\nmd5:$apr1$xyz$abc\ndear:{}", BOB.replace("$04$", "$31$"));
        assert_eq!(hash_of(&file, "bob"), BOB);
        for user in ["alice", "", "# users", "md5", "dear"] {
            assert_eq!(hash_of(&file, user), NOBODY, "{user}");
        }
        assert!(bcrypt::verify("", NOBODY).is_ok(), "it is a hash, so it costs what a hash costs");
    }

    #[test]
    fn the_three_prefixes_of_bcrypt_are_read() {
        let hash = bcrypt::hash_with_salt("secret", 4, *b"0123456789abcdef").unwrap();
        for version in [bcrypt::Version::TwoA, bcrypt::Version::TwoB, bcrypt::Version::TwoY] {
            let hash = hash.format_for_version(version);
            assert!(is_usable(&hash) && verify(b"secret", &hash) && !verify(b"other", &hash), "{hash}");
        }
    }
}
