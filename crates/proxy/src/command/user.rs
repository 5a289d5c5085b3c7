//! The user that the proxy switches to when it is started as root.

use std::io;

use crate::io::sys::Identity;

/// Resolves `USER[:GROUP]`, each a name or a number. The group defaults to the user's own; a number without a user entry
/// is used for both.
pub(super) fn find(text: &str) -> io::Result<Identity> {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    identity(text, &read("/etc/passwd"), &read("/etc/group"))
}

fn identity(text: &str, users: &str, groups: &str) -> io::Result<Identity> {
    let unknown = |what: &str, name: &str| io::Error::other(format!("no such {what}: \"{name}\""));
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let entry = entry(users, user);
    let number = |at: usize| entry.as_ref().and_then(|fields| fields.get(at)?.parse().ok());
    let id = number(2).or_else(|| user.parse().ok()).ok_or_else(|| unknown("user", user))?;
    let group = match group {
        None => number(3).unwrap_or(id),
        Some(group) => {
            let named = self::entry(groups, group).and_then(|fields| fields.get(2)?.parse().ok());
            named.or_else(|| group.parse().ok()).ok_or_else(|| unknown("group", group))?
        }
    };
    if id == 0 {
        return Err(io::Error::other("cannot switch to root"));
    }
    Ok(Identity { user: id, group })
}

/// The line of a name or number.
fn entry<'a>(file: &'a str, who: &str) -> Option<Vec<&'a str>> {
    let mut lines = file.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.find(|fields| fields.first() == Some(&who) || fields.get(2) == Some(&who))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0::/root:/bin/sh\nproxy:x:13:14:proxy:/bin:/usr/sbin/nologin\n";
    const GROUPS: &str = "root:x:0:\nweb:x:33:proxy\n";

    #[test]
    fn users_and_groups_have_names_and_numbers() {
        for (text, user, group) in [
            ("proxy", 13, 14),
            ("13", 13, 14),
            ("1000", 1000, 1000),
            ("proxy:web", 13, 33),
            ("proxy:33", 13, 33),
            ("1000:5", 1000, 5),
        ] {
            assert_eq!(identity(text, USERS, GROUPS).unwrap(), Identity { user, group }, "{text}");
        }
    }

    #[test]
    fn root_and_unknown_users_are_refused() {
        for (text, why) in [
            ("", "no such user: \"\""),
            ("nowhere", "no such user: \"nowhere\""),
            ("proxy:nowhere", "no such group: \"nowhere\""),
            ("proxy:", "no such group: \"\""),
            ("root", "cannot switch to root"),
            ("0:13", "cannot switch to root"),
        ] {
            assert_eq!(identity(text, USERS, GROUPS).unwrap_err().to_string(), why, "{text}");
        }
    }
}
