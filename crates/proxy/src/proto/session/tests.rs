use super::*;

fn at(ms: u64) -> Now {
    Now { ms, unix: ms }
}

fn routed(on: RetryOn, num_retries: u32, stages: usize) -> Session {
    let mut session = Session::new(at(0));
    let retry = Retry { retry_on: on, num_retries, timeout: 100 };
    let lookup = Arc::new(Lookup { rulelist: "rl".into(), rule: "r".into() });
    session.handle_route(lookup, stages, retry, at(0));
    session
}

fn actions(session: &mut Session) -> Vec<Action> {
    std::iter::from_fn(|| session.poll_action()).collect()
}

fn words(session: &Session) -> Vec<&'static str> {
    session.events("s").iter().map(|event| event.event).collect()
}

/// Lets every attempt come to `outcome`; returns when attempts began, and how it ended.
fn attempts(session: &mut Session, outcome: impl Fn(&mut Session, Now)) -> (Vec<u64>, Option<Finish>) {
    let (mut began, mut now) = (Vec::new(), at(0));
    loop {
        while let Some(action) = session.poll_action() {
            match action {
                Action::Connect(0) => {
                    began.push(now.ms);
                    outcome(session, now);
                }
                Action::Finish(finish) => return (began, Some(finish)),
                Action::TimeOut(at) => session.handle_failure(at, &Failure::timed_out(), "s", now),
                Action::Connect(_) | Action::Abandon(_) | Action::Open => {}
            }
        }
        let Some((due, _)) = session.poll_timeout() else { return (began, None) };
        now = at(due);
        session.handle_timeout(now);
    }
}

#[test]
fn a_failing_stage_is_tried_as_often_as_the_policy_says() {
    use RetryOn::{Always, ConnectFailure, Disconnect, Never};
    for on in [Never, ConnectFailure, Disconnect, Always] {
        for retries in 0..3 {
            let more = if matches!(on, ConnectFailure | Always) { u64::from(retries) } else { 0 };
            let expected: Vec<u64> = (0..=more).map(|n| n * 100).collect();
            let mut session = routed(on, retries, 1);
            let refused = |session: &mut Session, now| session.handle_failure(0, &Failure::connect("x"), "s", now);
            assert_eq!(attempts(&mut session, refused), (expected.clone(), Some(Finish::Error)), "{on:?} {retries}");
            let mut silent = routed(on, retries, 1);
            assert_eq!(attempts(&mut silent, |_, _| {}), (expected, Some(Finish::Error)), "{on:?} {retries} silent");
            assert_eq!(words(&silent), ["INIT", "LOOKUP SUCCESS", "ERROR"]);
        }
    }
}

#[test]
fn a_lost_stage_is_connected_again_as_often_as_the_policy_says() {
    use RetryOn::{Always, ConnectFailure, Disconnect, Never};
    for on in [Never, ConnectFailure, Disconnect, Always] {
        for retries in 0..3 {
            let mut session = routed(on, retries, 1);
            actions(&mut session);
            session.handle_connected(0, at(0));
            actions(&mut session);
            session.handle_disconnect(0, "c", "gone", at(0));
            let again = matches!(on, Disconnect | Always) && retries > 0;
            let (began, end) =
                attempts(&mut session, |session, now| session.handle_failure(0, &Failure::connect("x"), "s", now));
            let expected: Vec<u64> = if again { (0..u64::from(retries)).map(|n| n * 100).collect() } else { vec![] };
            let finish = if again { Finish::Error } else { Finish::Normal };
            assert_eq!((began, end), (expected, Some(finish)), "{on:?} {retries}");
        }
    }
}

#[test]
fn two_reconnects_of_a_stage_are_a_timeout_apart() {
    let mut session = routed(RetryOn::Always, 2, 1);
    let connect = |session: &mut Session, now| {
        assert_eq!(actions(session).last(), Some(&Action::Connect(0)));
        session.handle_connected(0, now);
        assert_eq!(actions(session), [Action::Open]);
    };
    connect(&mut session, at(0));
    session.handle_disconnect(0, "c", "gone", at(10));
    connect(&mut session, at(10));
    session.handle_disconnect(0, "c", "gone", at(20));
    assert_eq!(actions(&mut session), [Action::Abandon(0)]);
    assert_eq!(session.poll_timeout(), Some((110, "next attempt")));
    session.handle_timeout(at(110));
    connect(&mut session, at(110));
    assert_eq!((session.status(), session.take_retries()), (Status::Connected, 2));
}

#[test]
fn a_session_stands_when_its_last_stage_does() {
    let mut session = routed(RetryOn::Never, 1, 3);
    assert_eq!(actions(&mut session), [Action::Connect(0), Action::Connect(1), Action::Connect(2)]);
    session.handle_connected(2, at(1));
    session.handle_connected(0, at(1));
    assert_eq!((session.status(), actions(&mut session)), (Status::Init, vec![]));
    session.handle_connected(1, at(2));
    assert_eq!((session.status(), actions(&mut session)), (Status::Connected, vec![Action::Open]));
    session.handle_end(Finish::Api, Some("Session removed from the API"), at(3));
    session.handle_connected(1, at(4));
    session.handle_destroyed(at(4));
    assert_eq!(words(&session), ["INIT", "LOOKUP SUCCESS", "CONNECT", "END", "DESTROY"]);
    let end = &session.events("s")[3];
    assert_eq!((end.message.as_str(), end.content.as_str()), ("OK", "Session removed from the API"));
}

#[test]
fn a_refusal_tells_why() {
    let mut session = routed(RetryOn::Never, 1, 1);
    session.handle_failure(0, &Failure::not_found("No endpoint in cluster"), "s", at(0));
    let error = r#"Pipeline setup failed for session "s": Not Found: No endpoint in cluster"#;
    assert_eq!(session.error(), Some(("Not Found", error)));
}

#[test]
fn a_session_that_flaps_keeps_a_bounded_log() {
    let mut session = routed(RetryOn::Always, 1, 1);
    for round in 0..1000 {
        session.handle_connected(0, at(round * 1000));
        session.handle_disconnect(0, "c", "gone", at(round * 1000));
        actions(&mut session);
    }
    assert_eq!((words(&session).len(), words(&session)[0]), (EVENTS, "INIT"));
}
