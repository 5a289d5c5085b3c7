use crate::{Ran, portolan};

#[test]
fn a_command_that_is_not_there_yet_says_so_and_exits_2() {
    for (line, error) in [
        ("agent", "the node agent is not built into this version yet"),
        ("operator --capabilities ipam", "capability `ipam` is not built into this version yet"),
        (
            "operator --capabilities mirror,egress,gateway",
            "capabilities `gateway`, `mirror` are not built into this version yet",
        ),
    ] {
        assert_eq!(portolan(line), told(error, "see what this version serves: portolan --version"), "{line}");
    }
}

#[test]
fn words_that_are_not_understood_are_explained_with_a_command_to_paste() {
    for (line, error, hint) in [
        ("", "no command named", "see how it is used: portolan --help"),
        ("sail", "`sail` is not a command", "see how it is used: portolan --help"),
        ("operater", "`operater` is not a command", "did you mean `operator`? See portolan --help"),
        ("up --fast", "`--fast` is not known here", "see how it is used: portolan up --help"),
        (
            "crds --outputdir x",
            "`--outputdir` is not known here",
            "did you mean `--output-dir`? See portolan crds --help",
        ),
        ("crds --output-dir", "`--output-dir <DIR>` needs a value", "see how it is used: portolan crds --help"),
        ("completions", "`<SHELL>` is missing", "see how it is used: portolan completions --help"),
        (
            "operator --capabilities egres",
            "`egres` is not a value of `--capabilities <NAME>`: use gateway, egress, ipam, mirror, mesh",
            "did you mean `egress`? See portolan operator --help",
        ),
        (
            "proxy",
            "neither a configuration nor --api is given",
            "pass a file with -c, a configuration with --inline, or an address with --api",
        ),
        (
            "proxy -l loud",
            "`loud` is not a value of `--log-level <LEVEL>`: use silly, verbose, info, notice, warn, error, silent",
            "see how it is used: portolan proxy --help",
        ),
        ("-q -q up", "the argument '--quiet' cannot be used multiple times", "see how it is used: portolan up --help"),
    ] {
        assert_eq!(portolan(line), told(error, hint), "{line}");
    }
}

#[test]
fn quiet_silences_notes_but_not_errors() {
    let unreachable = "status egress --kubeconfig none";
    assert!(portolan(unreachable).stderr.starts_with("error: no cluster to speak to"));
    assert_eq!(portolan(&format!("{unreachable} -q")), portolan(unreachable), "an error is not a note");
    assert_eq!(portolan(unreachable).exit, Some(3));
    assert_ne!(portolan("agent -q").stderr, "");
}

/// A run that printed an error in our form, and nothing else.
fn told(error: &str, hint: &str) -> Ran {
    Ran { exit: Some(2), stdout: String::new(), stderr: format!("error: {error}\n\nhint: {hint}\n") }
}
