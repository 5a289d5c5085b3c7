use super::*;
use crate::config::json::Json;
use crate::rest::{Access, Api, Settings};
use serde_json::json;
use std::net::UdpSocket;

fn ask(client: &UdpSocket) -> bool {
    client.send(b"x").is_ok() && client.recv(&mut [0; 10]).is_ok()
}

#[test]
fn a_broken_worker_is_started_again_and_the_sessions_of_the_others_live() {
    let plane = DataPlane::start(Options { workers: 2, ..Options::default() }).unwrap();
    let access = Access::new(None, false, true).unwrap();
    let api = Api::new(Arc::clone(&plane) as _, access, Settings::default());
    let echo = json!([{ "action": { "route": { "destination": { "spec": { "protocol": "Echo" } } } } }]);
    let spec = json!({ "protocol": "UDP", "port": 0, "address": "127.0.0.1" });
    api.load(&Json::from(&json!({ "listeners": [{ "name": "l", "spec": spec, "rules": echo }] }))).unwrap();
    let clients: Vec<UdpSocket> = (0..16).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for client in &clients {
        client.connect(plane.local_address("l").unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert!(ask(client));
    }
    let names = || -> Vec<String> {
        let page = plane.sessions(&SessionFilter::default(), &Page::default());
        page.sessions.into_iter().map(|session| session.name).collect()
    };
    let of_worker = |worker: usize| -> Vec<String> {
        let asked = |name: &String, reply| {
            let filter = SessionFilter { name: Some(name.clone()), ..SessionFilter::default() };
            Command::Sweep { filter, from: 0, how: SweepAction::Count, reply }
        };
        let has = |name: &String| {
            let swept = plane.query_all(|reply| asked(name, reply));
            swept.iter().any(|swept| (swept.worker, swept.count) == (worker, 1))
        };
        names().into_iter().filter(has).collect()
    };
    let (broken, other) = (of_worker(0), of_worker(1));
    assert!(!broken.is_empty() && !other.is_empty(), "both workers have some of 16 clients");
    plane.shared.rings[0].push(Command::Fault).ok().unwrap();
    let until = Instant::now() + REPLY_TIMEOUT;
    while plane.stats().worker_restarts == 0 {
        assert!(Instant::now() < until, "the worker is not restarted");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!((of_worker(1), of_worker(0)), (other, vec![]));
    assert_eq!(plane.stats().sessions_active as usize, 16 - broken.len());
    assert!(clients.iter().all(ask), "the ports of the worker are served again");
    assert_eq!(names().len(), 16);
    plane.stop();
}
