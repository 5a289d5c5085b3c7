//! kill -9 in a loop: what was acknowledged is there, whenever the server dies.
//!
//! Each round starts the server on the same data folder, compares what it has with what was acknowledged, lets some
//! writers loose, and kills it at a random moment, now and then while it is still opening its store. A watch goes
//! with it, stays away for some rounds, takes up where it was and must miss nothing, or be told that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use futures::{AsyncBufRead, AsyncBufReadExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, Error, ResourceExt as _};
use portolan_testkit::Signal;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::child::{Child, client};

/// How often the server is killed unless `PORTOLAN_KILLS` says otherwise.
const KILLS: u32 = 200;
const WRITERS: usize = 4;
/// How many objects each writer has, so that it often meets one it wrote before.
const OBJECTS: usize = 6;
/// How long writers write at most in a round.
const ROUND: Duration = Duration::from_millis(120);
/// How long a watch may take to show what has happened.
const LIMIT: Duration = Duration::from_mins(2);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Marks the objects of this test.
const LABEL: &str = "test=durability";
/// Much longer than an answer takes. A client whose server is killed may wait for ever for one that is lost.
const ANSWER: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_write_outlives_kill_9() {
    let kills = match std::env::var_os("PORTOLAN_KILLS") {
        Some(kills) => kills.to_str().and_then(|kills| kills.parse().ok()).expect("PORTOLAN_KILLS is a number"),
        None => KILLS,
    };
    let seed = fastrand::u64(..);
    println!("{kills} kills with seed {seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let data = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::default();
    let mut mirror = Mirror::default();
    for _ in 0..kills {
        if dice.u32(..8) == 0 {
            kill_at_start(data.path(), &mut dice);
        } else {
            round(data.path(), &mut ledger, &mut mirror, &mut dice).await;
        }
    }
    // and once more in peace
    let (child, _) = Child::start(Some(data.path())).unwrap();
    let client = client(&child.kubeconfig()).await.unwrap();
    ledger.settle(&client).await;
    mirror.catch_up(&client, &mut ledger).await;
    println!(
        "{kills} kills: {} writes acknowledged, {} in doubt of which {} had happened; {} watches resumed with {} events \
         missed before, {} expired",
        ledger.acknowledged, ledger.doubted, ledger.happened, mirror.resumed, mirror.missed, mirror.expired
    );
    assert!(ledger.acknowledged > 0 || kills == 0, "no write was ever acknowledged");
}

/// Kills the server while it is starting, perhaps while it mends its store.
fn kill_at_start(data: &Path, dice: &mut fastrand::Rng) {
    let mut child = Child::launch(Some(data)).unwrap();
    std::thread::sleep(Duration::from_micros(dice.u64(..60_000)));
    kill(&mut child);
}

async fn round(data: &Path, ledger: &mut Ledger, mirror: &mut Mirror, dice: &mut fastrand::Rng) {
    let (mut child, _) = Child::start(Some(data)).unwrap();
    let client = client(&child.kubeconfig()).await.unwrap();
    ledger.settle(&client).await;
    // the watch is away, or looks what it has missed, or stays on as well
    let (look, stay) = [(false, false), (true, false), (true, true)][dice.usize(..3)];
    if look {
        mirror.catch_up(&client, ledger).await;
    }

    let until = Duration::from_micros(dice.u64(..u64::try_from(ROUND.as_micros()).unwrap()));
    let killing = async {
        tokio::time::sleep(until).await;
        tokio::task::block_in_place(|| kill(&mut child));
    };
    let maps = Api::namespaced(client.clone(), "default");
    let shares: Vec<_> = (0..WRITERS).map(|writer| (ledger.share(writer), dice.fork())).collect();
    let writing = join_all(shares.into_iter().map(|(share, dice)| write_until_it_breaks(&maps, share, dice)));
    let watching = async {
        if stay {
            mirror.follow(&client).await;
        }
    };
    let ((), (), shares) = futures::join!(killing, watching, writing);
    for share in shares {
        ledger.keep(share);
    }
}

fn kill(child: &mut Child) {
    child.program().signal(Signal::KILL).unwrap();
    let status = child.program().wait().unwrap();
    assert_eq!(status.code(), None, "the server ended by itself:\n{}", child.program().log_tail());
}

/// An object as it was acknowledged or found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Written {
    value: String,
    uid: String,
    revision: u64,
}

impl Written {
    fn of(map: &ConfigMap) -> Self {
        let value = map.data.as_ref().and_then(|data| data.get("value")).cloned().unwrap_or_default();
        Self { value, uid: map.uid().unwrap(), revision: number(&map.resource_version().unwrap()) }
    }
}

/// What is known of one object.
#[derive(Debug, Clone, Default)]
struct Known {
    /// As it was acknowledged last; nothing when it was deleted or never there.
    acknowledged: Option<Written>,
    /// What was asked last and never answered.
    in_doubt: Option<Asked>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Write(String),
    Delete,
}

impl Known {
    /// Whether an object may have been found so.
    fn allows(&self, found: Option<&Written>) -> bool {
        let (before, same) = (self.acknowledged.as_ref(), found == self.acknowledged.as_ref());
        match (&self.in_doubt, found) {
            (Some(Asked::Delete), None) => true,
            (Some(Asked::Write(value)), Some(found)) if found.value == *value => {
                before.is_none_or(|before| before.uid == found.uid && before.revision < found.revision)
            }
            _ => same,
        }
    }
}

/// One writer's objects, and the revisions of its acknowledged writes.
struct Share {
    objects: BTreeMap<String, Known>,
    newest: u64,
    revisions: BTreeSet<u64>,
    acknowledged: u64,
}

/// What was acknowledged, over all rounds.
#[derive(Default)]
struct Ledger {
    objects: BTreeMap<String, Known>,
    /// The newest revision that anyone was told.
    revision: u64,
    /// The revisions of acknowledged creates and updates that the watch has not shown yet.
    unseen: BTreeSet<u64>,
    acknowledged: u64,
    doubted: u64,
    happened: u64,
}

impl Ledger {
    /// Compares what is there with what was acknowledged, which ends all doubt.
    async fn settle(&mut self, client: &Client) {
        let (found, revision) = list(client).await;
        assert!(revision >= self.revision, "the server was at revision {} and is at {revision}", self.revision);
        let names: BTreeSet<String> = self.objects.keys().chain(found.keys()).cloned().collect();
        for name in names {
            let known = self.objects.entry(name.clone()).or_default();
            let found = found.get(&name);
            assert!(known.allows(found), "{name}: known {known:?}, found {found:?}");
            assert!(found.is_none_or(|found| found.revision <= revision), "{name} is newer than all: {found:?}");
            if known.in_doubt.take().is_some() {
                self.doubted += 1;
                self.happened += u64::from(known.acknowledged.as_ref() != found);
            }
            known.acknowledged = found.cloned();
        }
        self.revision = revision;
    }

    fn share(&self, writer: usize) -> Share {
        let names = (0..OBJECTS).map(|object| format!("w{writer}-{object}"));
        let known = names.map(|name| (name.clone(), self.objects.get(&name).cloned().unwrap_or_default()));
        Share { objects: known.collect(), newest: self.revision, revisions: BTreeSet::new(), acknowledged: 0 }
    }

    fn keep(&mut self, share: Share) {
        let Share { objects, newest, mut revisions, acknowledged } = share;
        self.revision = self.revision.max(newest);
        self.unseen.append(&mut revisions);
        self.acknowledged += acknowledged;
        self.objects.extend(objects);
    }
}

/// Creates, updates and deletes until the server is gone; what was not answered then is in doubt.
async fn write_until_it_breaks(maps: &Api<ConfigMap>, mut share: Share, mut dice: fastrand::Rng) -> Share {
    loop {
        let index = dice.usize(..OBJECTS);
        let (name, known) = share.objects.iter_mut().nth(index).expect("a writer has that many");
        let value = format!("{:x}", dice.u64(..));
        let asked = match &known.acknowledged {
            Some(_) if dice.u32(..3) == 0 => Asked::Delete,
            _ => Asked::Write(value),
        };
        match timeout(ANSWER, ask(maps, name, known.acknowledged.as_ref(), &asked)).await {
            Ok(Ok(written)) => {
                if let Some(written) = &written {
                    assert!(written.revision > share.newest, "{name}: {} after {}", written.revision, share.newest);
                    share.newest = written.revision;
                    share.revisions.insert(written.revision);
                }
                known.acknowledged = written;
                share.acknowledged += 1;
            }
            // nobody else writes these objects, so the server has no reason to refuse
            Ok(Err(Error::Api(status))) => panic!("{name} was refused: {status:?}"),
            Ok(Err(_)) | Err(_) => {
                known.in_doubt = Some(asked);
                return share;
            }
        }
    }
}

async fn ask(
    maps: &Api<ConfigMap>,
    name: &str,
    before: Option<&Written>,
    asked: &Asked,
) -> kube::Result<Option<Written>> {
    let map = |value: &str| {
        let mut metadata = json!({ "name": name, "labels": { "test": "durability" } });
        if let Some(before) = before {
            metadata["resourceVersion"] = before.revision.to_string().into();
        }
        // so that they are not all of one size
        let padding = value.repeat(usize::from(value.as_bytes()[0]));
        let map = json!({ "metadata": metadata, "data": { "value": value, "padding": padding } });
        serde_json::from_value(map).map_err(Error::SerdeError)
    };
    let options = PostParams::default();
    match (asked, before) {
        (Asked::Write(value), None) => Ok(Some(Written::of(&maps.create(&options, &map(value)?).await?))),
        (Asked::Write(value), Some(_)) => Ok(Some(Written::of(&maps.replace(name, &options, &map(value)?).await?))),
        (Asked::Delete, _) => maps.delete(name, &DeleteParams::default()).await.map(|_| None),
    }
}

/// What a watch has shown: the objects as its events make them.
#[derive(Default)]
struct Mirror {
    objects: BTreeMap<String, Written>,
    /// Of the last event; the watch goes on from here.
    revision: Option<u64>,
    seen: BTreeSet<u64>,
    resumed: u64,
    /// How many events came after a resumption that were of the time before.
    missed: usize,
    expired: u64,
}

impl Mirror {
    /// Takes the watch up where it was cut, until it has shown every acknowledged write and what is there.
    async fn catch_up(&mut self, client: &Client, ledger: &mut Ledger) {
        let there = ledger.objects.iter().filter_map(|(name, known)| Some((name.clone(), known.acknowledged.clone()?)));
        let goal = Goal { there: there.collect(), revisions: std::mem::take(&mut ledger.unseen) };
        let before = self.seen.len();
        let resumed = match self.revision {
            Some(revision) => tokio::time::timeout(LIMIT, self.read(client, revision, Some(&goal))).await,
            None => Ok(End::Expired),
        };
        match resumed {
            Ok(End::CaughtUp) => {
                self.resumed += 1;
                self.missed += self.seen.len() - before;
            }
            Ok(End::Expired) => {
                self.expired += u64::from(self.revision.is_some());
                self.objects = goal.there;
            }
            Ok(End::Cut) => panic!("the server ended a watch by itself"),
            Err(_) => {
                let missing: Vec<_> = goal.revisions.difference(&self.seen).collect();
                panic!("the watch misses {missing:?}; it shows {:?}, there is {:?}", self.objects, goal.there);
            }
        }
        self.seen.clear();
        self.revision = Some(ledger.revision);
    }

    /// Follows until the server is gone.
    async fn follow(&mut self, client: &Client) {
        let from = self.revision.expect("it has caught up");
        match self.read(client, from, None).await {
            End::Cut => {}
            End::Expired | End::CaughtUp => panic!("a watch from the newest revision, {from}, is expired"),
        }
    }

    /// Reads events until the connection breaks, or until they reach the goal.
    async fn read(&mut self, client: &Client, from: u64, goal: Option<&Goal>) -> End {
        let caught_up = |mirror: &Self| {
            goal.is_some_and(|goal| goal.there == mirror.objects && goal.revisions.is_subset(&mirror.seen))
        };
        if caught_up(self) {
            return End::CaughtUp;
        }
        let path = format!("{MAPS}?watch=1&labelSelector={}&resourceVersion={from}", LABEL.replace('=', "%3D"));
        let request = client.request_stream(http::Request::get(path).body(Vec::new()).unwrap());
        let mut lines = match timeout(ANSWER, request).await {
            Ok(Ok(lines)) => Box::pin(lines),
            Ok(Err(Error::Api(status))) if status.code == 410 => return End::Expired,
            Ok(Err(Error::Api(status))) => panic!("the watch was refused: {status:?}"),
            Ok(Err(_)) | Err(_) => return End::Cut,
        };
        while let Ok(Some(event)) = timeout(ANSWER, next(&mut lines)).await {
            if event["type"] == "ERROR" {
                assert_eq!(event["object"]["code"], 410, "{event}");
                return End::Expired;
            }
            self.take(&event);
            if caught_up(self) {
                return End::CaughtUp;
            }
        }
        End::Cut
    }

    fn take(&mut self, event: &Value) {
        let map: ConfigMap = serde_json::from_value(event["object"].clone()).unwrap();
        let (name, written) = (map.name_any(), Written::of(&map));
        let last = self.revision.replace(written.revision);
        assert!(last < Some(written.revision), "an event of {} after {last:?}", written.revision);
        let before = self.objects.contains_key(&name);
        match event["type"].as_str() {
            Some("ADDED") => assert!(!before, "{name} was added twice: an event is missing"),
            Some("MODIFIED" | "DELETED") => assert!(before, "{name} was not there: an event is missing"),
            _ => panic!("{event}"),
        }
        self.seen.insert(written.revision);
        if event["type"] == "DELETED" {
            self.objects.remove(&name);
        } else {
            self.objects.insert(name, written);
        }
    }
}

/// What a watch must have shown.
struct Goal {
    there: BTreeMap<String, Written>,
    revisions: BTreeSet<u64>,
}

/// How reading a watch ended.
enum End {
    /// The goal is reached.
    CaughtUp,
    /// The revision has left the window: 410.
    Expired,
    /// The connection broke.
    Cut,
}

/// The next event, if a whole one comes.
async fn next(lines: &mut (impl AsyncBufRead + Unpin)) -> Option<Value> {
    let mut line = String::new();
    lines.read_line(&mut line).await.ok()?;
    // the server may die in the middle of a line
    line.strip_suffix('\n').map(|line| serde_json::from_str(line).unwrap())
}

async fn list(client: &Client) -> (BTreeMap<String, Written>, u64) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let list = maps.list(&ListParams::default().labels(LABEL)).await.unwrap();
    let revision = number(&list.metadata.resource_version.unwrap());
    (list.items.iter().map(|map| (map.name_any(), Written::of(map))).collect(), revision)
}

fn number(revision: &str) -> u64 {
    revision.parse().expect("revisions are numbers here")
}
