//! The differential suite: every story runs on two servers, and their responses must be equal.
//!
//! A story (`cases/*.yaml`, read by [`story`]) is a list of requests that build on each other. It runs on server A and
//! on server B, in a namespace of its own, with cluster-wide names of its own ([`run`]). What must differ between any
//! two servers (uids, revisions, times, generated names, addresses) gets a common name ([`normal`]); all the rest is
//! compared: status code, content type, warnings, body, watch events ([`compare`]). What may differ for a reason is listed
//! in `differences.yaml`, and an entry there that nothing needs fails the suite. [`coverage`] counts the distinct requests,
//! and checks that all verbs, patch types, selectors, options and errors came up.
//!
//! Every story runs in JSON, and at the same time, in a namespace of its own, in protobuf: then bodies of built-in kinds are
//! sent in it, and answers are asked for in it, with JSON as the second choice. Empty values are left out of those answers.
//!
//! `PORTOLAN_STORY=word` runs only the stories whose file or sentence contains the word, without counting anything;
//! `PORTOLAN_SHOW=1` prints what A answered.

use std::sync::Arc;

use futures::{StreamExt as _, future, stream};

use self::compare::Differences;
use self::coverage::Coverage;
use self::run::{Encoding, StoryRunner};
use self::server::Server;
use self::story::Story;

mod compare;
mod coverage;
mod normal;
mod run;
mod server;
mod story;

/// How many stories run at a time.
const AT_ONCE: usize = 8;
/// How many differences a failure shows at most.
const SHOWN: usize = 200;

/// Runs every story on both servers and fails when their responses differ and the difference is not listed.
pub(crate) async fn compare(a: Server, b: Server) {
    let chosen = std::env::var_os("PORTOLAN_STORY").map(|word| word.to_string_lossy().into_owned());
    let is_shown = std::env::var_os("PORTOLAN_SHOW").is_some();
    let is_chosen = |story: &Story| {
        chosen.as_ref().is_none_or(|word| story.sentence.contains(word) || story.file.contains(word.as_str()))
    };
    let stories: Vec<Arc<Story>> = story::load_all().into_iter().filter(is_chosen).map(Arc::new).collect();
    assert!(!stories.is_empty(), "no story is called like that");
    let (a, b) = future::join(StoryRunner::new("a", a), StoryRunner::new("b", b)).await;

    let passes = [Encoding::Json, Encoding::Protobuf];
    let runs = passes
        .into_iter()
        .flat_map(|encoding| stories.iter().enumerate().map(move |(number, story)| (number, story, encoding)));
    // What waits for a time to pass waits in one encoding.
    let runs = runs.filter(|(_, story, encoding)| *encoding == Encoding::Json || story.has_two_encodings());
    let answered = runs.map(|(number, story, encoding)| {
        let (a, b) = (&a, &b);
        async move { (story, future::join(a.run(story, number, encoding), b.run(story, number, encoding)).await) }
    });
    let answered: Vec<_> = stream::iter(answered).buffered(AT_ONCE).collect().await;

    let (mut differences, mut coverage) = (Differences::load(), Coverage::default());
    let mut failed = Vec::new();
    for (story, (left, right)) in &answered {
        for ((step, left), right) in story.steps.iter().zip(left).zip(right) {
            if is_shown {
                println!("\n{}: {}: {}\n{left}", story.file, story.sentence, step.shown());
            }
            for (side, answer) in [("A", left), ("B", right)].iter().filter(|(_, answer)| answer.get("error").is_some())
            {
                failed.push(format!(
                    "{}: {}: {}: {side}: {}",
                    story.file,
                    story.sentence,
                    step.shown(),
                    answer["error"]
                ));
            }
            coverage.see(step, left);
            differences.see(story, step, left, right);
        }
    }
    let (count, mut report) = differences.unexplained(SHOWN);
    report.extend(failed);
    if chosen.is_none() {
        let missing = differences.unused().chain(coverage.missing());
        report.extend(missing);
    }
    println!("{} stories, {} distinct requests, {count} differences", stories.len(), coverage.distinct());
    assert!(report.is_empty(), "\n{}\n{count} differences", report.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_server_answers_like_the_real_one() {
    compare(Server::real(), Server::embedded().await).await;
}
