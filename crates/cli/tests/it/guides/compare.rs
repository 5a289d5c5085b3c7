//! Compares what a command prints with what a document shows.

use std::net::Ipv4Addr;

/// A line without what differs from run to run: ages, which node, drawn addresses, ports, hashes in names.
pub(super) fn normal(line: &str) -> String {
    line.split_whitespace().map(normal_word).collect::<Vec<_>>().join(" ")
}

fn normal_word(word: &str) -> String {
    let is_age = word.ends_with(['s', 'm', 'h'])
        && word.starts_with(|first: char| first.is_ascii_digit())
        && word.chars().all(|letter| letter.is_ascii_digit() || "smh".contains(letter));
    if is_age {
        return "AGE".to_owned();
    }
    let bare = word.trim_end_matches([',', ';', ':', '.']);
    if bare.strip_prefix("node-").is_some_and(|rest| rest.len() == 1) {
        return format!("node-N{}", &word[bare.len()..]);
    }
    if let Some(addresses) = bare.split(',').map(drawn_address).collect::<Option<Vec<_>>>() {
        return addresses.join(",");
    }
    if is_time(bare.trim_matches('"')) {
        return "TIME".to_owned();
    }
    if let Some(rest) = word.split_once("127.0.0.1:").map(|(before, _)| before) {
        return format!("{rest}127.0.0.1:PORT");
    }
    match word.rsplit_once('-') {
        Some((name, hash)) if hash.len() >= 10 && hash.chars().all(|letter| letter.is_ascii_alphanumeric()) => {
            format!("{name}-HASH")
        }
        _ => word.to_owned(),
    }
}

/// Whether it is a time as Kubernetes writes it, such as 2026-03-02T09:14:05Z.
fn is_time(word: &str) -> bool {
    let form: String = word.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect();
    form == "0000-00-00T00:00:00Z"
}

/// The word that an address chosen at random is replaced by.
fn drawn_address(word: &str) -> Option<&'static str> {
    let [a, b, c, _] = word.parse::<Ipv4Addr>().ok()?.octets();
    match (a, b, c) {
        (10, 96..=111, _) => Some("CLUSTER-IP"),
        (10, 6, 32 | 33) => Some("CLOUD-IP"),
        _ => None,
    }
}

/// Puts rows that begin with a drawn address into the order of what follows it: the address decides where they stand.
pub(super) fn in_any_order(mut lines: Vec<String>) -> Vec<String> {
    let is_row = |line: &str| line.starts_with("CLOUD-IP ") || line.starts_with("CLUSTER-IP ");
    for rows in lines.chunk_by_mut(|one, next| is_row(one) && is_row(next)) {
        rows.sort();
    }
    lines
}

/// Whether lines are as shown; `...` matches any lines, or the rest of one.
pub(super) fn matches(shown: &[String], lines: &[String]) -> bool {
    match (shown.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((line, rest)), _) if line == "..." => (0..=lines.len()).any(|from| matches(rest, &lines[from..])),
        (Some((line, rest)), Some((seen, others))) => {
            let is_same = match line.strip_suffix("...'").or_else(|| line.strip_suffix("...")) {
                Some(begins) => seen.starts_with(begins.trim_end()),
                None => line == seen,
            };
            is_same && matches(rest, others)
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[test]
fn what_differs_from_run_to_run_is_not_compared() {
    assert_eq!(normal("web   10.100.1.2  node-3  1m5s  dns-q815mp1i8b"), "web CLUSTER-IP node-N AGE dns-HASH");
    assert_eq!(normal("egressips: 10.6.32.7,10.6.33.9"), "egressips: CLOUD-IP,CLOUD-IP");
    assert_eq!(normal("10.7.0.2,10.7.0.3 \"2026-03-02T09:14:05Z\""), "10.7.0.2,10.7.0.3 TIME");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&lines("a\n...\nz"), &lines("a\nb\nc\nz")) && matches(&lines("a b..."), &lines("a bc d")));
    assert!(!matches(&lines("a"), &lines("a\nb")) && !matches(&lines("a\nb"), &lines("a")));
    let rows = |text: &str| in_any_order(lines(text));
    assert_eq!(rows("NAME\nCLOUD-IP b\nCLOUD-IP a"), rows("NAME\nCLOUD-IP a\nCLOUD-IP b"));
    assert_ne!(rows("b\na"), rows("a\nb"));
}
