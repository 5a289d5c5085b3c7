//! API access: bearer tokens from a file, client certificates, or clients on this machine.

use std::fs;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::exchange::{Client, Request};

/// What a client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Read,
    Write,
}

/// Why access is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// No credentials, or invalid ones.
    Unknown,
    /// The token is read-only.
    ReadOnly,
    /// The API has no authentication, so only clients on this machine are allowed.
    Remote,
}

/// The access rules of one process.
#[derive(Debug, Default)]
pub struct Access {
    tokens: Option<Tokens>,
    certificates: bool,
    insecure: bool,
}

impl Access {
    /// `certificates`: the server requests client certificates. `insecure`: unauthenticated access is allowed.
    pub fn new(token_file: Option<&Path>, certificates: bool, insecure: bool) -> io::Result<Self> {
        let tokens = token_file.map(Tokens::open).transpose()?;
        Ok(Self { tokens, certificates, insecure })
    }

    /// Whether clients must authenticate.
    pub fn is_guarded(&self) -> bool {
        self.tokens.is_some() || self.certificates
    }

    /// Whether the API must be reachable only from this machine.
    pub fn is_loopback_only(&self) -> bool {
        !self.is_guarded() && !self.insecure
    }

    /// Checks that the client has the role.
    pub fn check(&self, request: &Request, needs: Role) -> Result<(), Denied> {
        if !self.is_guarded() {
            let allowed = self.insecure || is_local(&request.client);
            return if allowed { Ok(()) } else { Err(Denied::Remote) };
        }
        let by_token = self.tokens.as_ref().and_then(|tokens| tokens.role(bearer(request)?));
        let by_certificate = (self.certificates && request.client.certified).then_some(Role::Write);
        match by_token.max(by_certificate) {
            None => Err(Denied::Unknown),
            Some(role) if role < needs => Err(Denied::ReadOnly),
            Some(_) => Ok(()),
        }
    }
}

/// Tokens from a file, which is read again when it changes.
#[derive(Debug)]
struct Tokens {
    path: PathBuf,
    read: Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    stamp: Option<FileVersion>,
    tokens: Vec<(String, Role)>,
}

/// Identifies a version of the file: inode, modification time, length.
type FileVersion = (u64, i64, i64, u64);

impl Tokens {
    fn open(path: &Path) -> io::Result<Self> {
        let mut read = Read::default();
        read.refresh(path)?;
        Ok(Self { path: path.to_owned(), read: Mutex::new(read) })
    }

    /// The role of a token, compared in constant time.
    fn role(&self, token: &str) -> Option<Role> {
        let mut read = self.read.lock();
        if let Err(error) = read.refresh(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "cannot read the token file: the last tokens stay valid");
        }
        let mut found = None;
        for (known, role) in &read.tokens {
            if constant_time_eq(known.as_bytes(), token.as_bytes()) {
                found = found.max(Some(*role));
            }
        }
        found
    }
}

impl Read {
    fn refresh(&mut self, path: &Path) -> io::Result<()> {
        let about = fs::metadata(path)?;
        let stamp = (about.ino(), about.mtime(), about.mtime_nsec(), about.len());
        if self.stamp == Some(stamp) {
            return Ok(());
        }
        self.tokens = tokens(&fs::read_to_string(path)?)?;
        self.stamp = Some(stamp);
        Ok(())
    }
}

/// Parses lines of a token and a role; empty lines and lines starting with `#` are ignored.
fn tokens(text: &str) -> io::Result<Vec<(String, Role)>> {
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            let mut words = line.split_whitespace();
            let role = match (words.next(), words.next(), words.next()) {
                (Some(token), Some("read"), None) => Some((token.to_owned(), Role::Read)),
                (Some(token), Some("write"), None) => Some((token.to_owned(), Role::Write)),
                _ => None,
            };
            let wrong = || format!("line {number}: expected a token and its role, `read` or `write`");
            role.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, wrong()))
        })
        .collect()
}

fn bearer(request: &Request) -> Option<&str> {
    let (scheme, token) = request.header("authorization")?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn is_local(client: &Client) -> bool {
    client.address.is_none_or(|address| address.to_canonical().is_loopback())
}

/// Compares in a time that depends on the length of `given` alone.
fn constant_time_eq(known: &[u8], given: &[u8]) -> bool {
    let mut difference = usize::from(known.len() != given.len());
    for (index, byte) in given.iter().enumerate() {
        let other = known.get(index % known.len().max(1)).copied().unwrap_or_default();
        difference |= black_box(usize::from(byte ^ other));
    }
    black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(authorization: Option<&str>, address: &str) -> Request {
        Request {
            headers: authorization.map(|value| ("authorization".to_owned(), value.to_owned())).into_iter().collect(),
            client: Client { address: address.parse().ok(), certified: false },
            ..Request::default()
        }
    }

    #[test]
    fn without_authentication_only_this_machine_may() {
        let open = Access::new(None, false, false).unwrap();
        assert_eq!(open.check(&request(None, "127.0.0.1"), Role::Write), Ok(()));
        assert_eq!(open.check(&request(None, "::ffff:127.0.0.1"), Role::Write), Ok(()));
        assert_eq!(open.check(&request(None, "10.0.0.1"), Role::Read), Err(Denied::Remote));
        let insecure = Access::new(None, false, true).unwrap();
        assert_eq!(insecure.check(&request(None, "10.0.0.1"), Role::Write), Ok(()));
    }

    #[test]
    fn a_token_has_its_role_and_nothing_else_has_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        fs::write(&file, "# ours\nalpha read\nbeta  write\n\n").unwrap();
        let access = Access::new(Some(&file), false, false).unwrap();
        let check = |token: &str, needs| access.check(&request(Some(token), "127.0.0.1"), needs);
        assert_eq!(check("Bearer alpha", Role::Read), Ok(()));
        assert_eq!(check("Bearer alpha", Role::Write), Err(Denied::ReadOnly));
        assert_eq!(check("bearer beta", Role::Write), Ok(()));
        for wrong in ["Bearer alph", "Bearer alphaalpha", "Bearer ", "Basic beta", "beta"] {
            assert_eq!(check(wrong, Role::Read), Err(Denied::Unknown), "{wrong}");
        }
        assert_eq!(access.check(&request(None, "127.0.0.1"), Role::Read), Err(Denied::Unknown));
    }

    #[test]
    fn a_token_listed_twice_has_the_larger_role_in_either_order() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        fs::write(&file, "a write\na read\nb read\nb write\n").unwrap();
        let access = Access::new(Some(&file), false, false).unwrap();
        for token in ["Bearer a", "Bearer b"] {
            assert_eq!(access.check(&request(Some(token), "127.0.0.1"), Role::Write), Ok(()), "{token}");
        }
    }

    #[test]
    fn a_changed_token_file_counts_at_once_and_a_lost_one_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        fs::write(&file, "old write\n").unwrap();
        let access = Access::new(Some(&file), false, false).unwrap();
        let check = |token: &str| access.check(&request(Some(token), "127.0.0.1"), Role::Write);
        assert_eq!(check("Bearer old"), Ok(()));
        fs::write(dir.path().join("next"), "fresh write\n").unwrap();
        fs::rename(dir.path().join("next"), &file).unwrap();
        assert_eq!(check("Bearer old"), Err(Denied::Unknown));
        assert_eq!(check("Bearer fresh"), Ok(()));
        fs::remove_file(&file).unwrap();
        assert_eq!(check("Bearer fresh"), Ok(()));
    }

    #[test]
    fn a_line_without_a_role_is_refused_and_named() {
        assert!(tokens("a read\nb\n").unwrap_err().to_string().contains("line 2"));
        assert!(tokens("a admin").is_err());
    }

    #[test]
    fn a_certificate_may_do_everything() {
        let access = Access::new(None, true, false).unwrap();
        let mut request = request(None, "10.0.0.1");
        assert_eq!(access.check(&request, Role::Read), Err(Denied::Unknown));
        request.client.certified = true;
        assert_eq!(access.check(&request, Role::Write), Ok(()));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        fs::write(&file, "t write\n").unwrap();
        let by_token_alone = Access::new(Some(&file), false, false).unwrap();
        assert_eq!(by_token_alone.check(&request, Role::Read), Err(Denied::Unknown));
    }
}
