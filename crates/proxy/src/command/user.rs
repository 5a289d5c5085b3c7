//! The user that the proxy goes on as, once it was started by root.

use std::io;

use crate::io::sys::Identity;

/// Finds `USER[:GROUP]`, each a name or a number. Without a group it is the user's own; a number that no user has
/// stands for both.
pub(super) fn find(text: &str) -> io::Result<Identity> {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    identity(text, &read("/etc/passwd"), &read("/etc/group"))
}

fn identity(text: &str, users: &str, groups: &str) -> io::Result<Identity> {
    let unknown = |what: &str, name: &str| io::Error::other(format!("there is no {what} \"{name}\""));
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
        return Err(io::Error::other("that is root itself"));
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
    fn nobody_becomes_root_or_one_who_is_not_there() {
        for (text, why) in [
            ("", "there is no user \"\""),
            ("nowhere", "there is no user \"nowhere\""),
            ("proxy:nowhere", "there is no group \"nowhere\""),
            ("proxy:", "there is no group \"\""),
            ("root", "that is root itself"),
            ("0:13", "that is root itself"),
        ] {
            assert_eq!(identity(text, USERS, GROUPS).unwrap_err().to_string(), why, "{text}");
        }
    }
}
