//! The thread that owns the client.
//!
//! ```text
//!   client ──▶ main queue: rebalances, commits, errors ───▶ served at every wake, always
//!          └─▶ a queue per partition: records ────────────▶ read while the buffer has room
//! ```
//!
//! Serving the main queue is what keeps the membership, so it never waits for a handler. Records
//! that find no room stay in the client's queues, whose size is bounded; pausing the partitions
//! instead would throw those away and read them again.

use super::{
    context::{Context, offsets},
    missing,
    shared::Ledger,
};
use malote_core::{Delivery, Place, RawRecord, planted};
use rdkafka::{
    ClientConfig, Message,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::{KafkaError, KafkaResult},
    message::{BorrowedMessage, Headers},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// The longest time between two looks at the main queue.
const EVERY: Duration = Duration::from_millis(50);
/// So many records of one partition are read before the next one gets its turn.
const STRIDE: usize = 200;
/// Events that may wait in the main queue behind one another.
const EVENTS: usize = 16;

/// A handle on the thread. Dropped, it lets the thread leave the group by itself.
pub(super) struct Member {
    thread: Thread,
    stop: Arc<AtomicBool>,
    gone: oneshot::Receiver<()>,
}

impl Member {
    pub(super) async fn start(
        config: ClientConfig,
        topics: Vec<String>,
        ledger: Arc<Ledger>,
        commit_every: Duration,
    ) -> Result<Self, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = oneshot::channel();
        let (leave, gone) = oneshot::channel();
        let asked = stop.clone();
        let thread = thread::Builder::new()
            .name("malote-kafka-in".into())
            .spawn(move || {
                let joined = join(&config, &topics, ledger);
                let _ = ready.send(joined.as_ref().map(|_| ()).map_err(Clone::clone));
                if let Ok(consumer) = joined {
                    serve(consumer, &asked, commit_every);
                }
                let _ = leave.send(());
            })
            .map_err(|e| e.to_string())?;
        let member = Self { thread: thread.thread().clone(), stop, gone };
        is_ready.await.unwrap_or_else(|_| Err("the thread ended".into()))?;
        Ok(member)
    }

    /// The buffer has room again.
    pub(super) fn wake(&self) {
        self.thread.unpark();
    }

    /// Leaves the group and waits until it has left.
    pub(super) async fn stop(mut self) {
        self.stop.store(true, SeqCst);
        self.wake();
        let _ = (&mut self.gone).await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.wake();
    }
}

type Client = Arc<BaseConsumer<Context>>;

fn join(config: &ClientConfig, topics: &[String], ledger: Arc<Ledger>) -> Result<Client, String> {
    let group = config.get("group.id").unwrap_or_default().to_owned();
    let context = Context::new(group, ledger, thread::current());
    let refused = |e: KafkaError| crate::config::refused(e).to_string();
    let mut consumer: BaseConsumer<Context> = config.create_with_context(context).map_err(refused)?;
    let me = thread::current();
    consumer.set_nonempty_callback(move || me.unpark());
    let consumer = Arc::new(consumer);
    // the only place that sets it
    let _ = consumer.context().consumer.set(Arc::downgrade(&consumer));
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    consumer.subscribe(&topics).map_err(|e| e.to_string())?;
    Ok(consumer)
}

fn serve(consumer: Client, stop: &AtomicBool, commit_every: Duration) {
    let ledger = consumer.context().ledger.clone();
    let mut committed = Instant::now();
    while !stop.load(SeqCst) {
        for _ in 0..EVENTS {
            if let Some(polled) = consumer.poll(Duration::ZERO) {
                receive(&consumer, polled);
            }
        }
        let more = read(&consumer);
        if committed.elapsed() >= commit_every {
            commit(&consumer, CommitMode::Async);
            committed = Instant::now();
        }
        if !more {
            thread::park_timeout(EVERY);
        }
        while planted::is("kafka-poll-always") && ledger.is_full() && !stop.load(SeqCst) {
            thread::park_timeout(EVERY);
        }
    }
    commit(&consumer, CommitMode::Sync);
    // they hold the consumer, which leaves the group when the last of its holders lets it go
    let queues = std::mem::take(&mut *consumer.context().queues());
    drop(queues);
    drop(consumer);
}

/// Moves records from the partitions' queues to the buffer while there is room; says whether there
/// may be more.
fn read(consumer: &Client) -> bool {
    let ledger = &consumer.context().ledger;
    let queues: Vec<_> = consumer.context().queues().iter().map(|(at, queue)| (at.clone(), queue.clone())).collect();
    let mut more = false;
    for (_, queue) in queues.into_iter().filter(|(at, _)| !ledger.is_held(at)) {
        let mut taken = 0;
        while taken < STRIDE && !ledger.is_full() {
            match queue.poll(Duration::ZERO) {
                Some(polled) => receive(consumer, polled),
                None => break,
            }
            taken += 1;
        }
        more |= taken == STRIDE;
    }
    more
}

fn receive(consumer: &Client, polled: KafkaResult<BorrowedMessage<'_>>) {
    let context = consumer.context();
    match polled {
        // one of a former assignment finds no place and is dropped
        Ok(message) => {
            let delivery = delivery(&message);
            missing::tell(consumer, &context.group, &context.ledger, &delivery);
            context.ledger.push(delivery);
        }
        Err(KafkaError::MessageConsumptionFatal(code)) => context.ledger.fail(code.to_string()),
        Err(error) => context.ration.warn("receiving", format_args!("{error}")),
    }
}

fn commit(consumer: &Client, mode: CommitMode) {
    let context = consumer.context();
    let due = context.ledger.due();
    if due.is_empty() {
        return;
    }
    if let Err(error) = consumer.commit(&offsets(&due), mode) {
        context.ration.warn("commit", format_args!("{error}; it is tried again"));
        context.ledger.undo(due.into_iter().map(|(at, _)| at));
    }
}

fn delivery(message: &BorrowedMessage<'_>) -> Delivery {
    let bytes = |part: Option<&[u8]>| part.map(bytes::Bytes::copy_from_slice);
    let record = RawRecord {
        key: bytes(message.key()),
        headers: message.headers().map_or_else(Vec::new, headers),
        payload: bytes(message.payload()),
    };
    let place = Place {
        topic: message.topic().to_owned(),
        partition: message.partition(),
        offset: message.offset(),
        assignment: 0, // the ledger's business
    };
    Delivery { place, record }
}

/// Copies the headers. The client panics on a name that is not UTF-8; such a header is left out, since
/// nobody here could have asked for it.
fn headers(headers: &impl Headers) -> Vec<(String, bytes::Bytes)> {
    let one = |at| catch_unwind(AssertUnwindSafe(|| headers.try_get(at))).ok().flatten();
    (0..headers.count())
        .filter_map(|at| {
            let header = one(at)?;
            Some((header.key.to_owned(), bytes::Bytes::copy_from_slice(header.value.unwrap_or_default())))
        })
        .collect()
}
