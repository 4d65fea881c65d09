//! A member's thread: reads ahead, gives signs of life, hands partitions over.
//!
//! It works beside whoever handles the records, so a slow handler costs no membership. In this
//! process the writer wakes it; other processes are noticed by a look at the file's change counter,
//! every few milliseconds while there is something to do, ten times a second when there is not.

use super::{
    Inner, frame,
    groups::{self, Held, Membership},
    log, missing,
    writer::{Open, Watcher},
};
use bytes::Bytes;
use malote_core::{Delivery, Place, RawRecord, TransportError, planted};
use rusqlite::{Connection, OptionalExtension};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};
use tokio::sync::{Notify, oneshot};

/// What is read ahead at most, over all partitions.
const MOST_RECORDS: usize = 1024;
const MOST_BYTES: usize = 8 << 20;
/// What is read of one partition before the next one has its turn.
const AT_ONCE: usize = 256;
/// Between two looks at the file.
const SHORTEST_LOOK: Duration = Duration::from_millis(2);
const LONGEST_LOOK: Duration = Duration::from_millis(100);

/// What a member's thread and its subscription share.
#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// There is something for `next()`.
    pub(super) ready: Notify,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) who: Option<Membership>,
    pub(super) owned: HashMap<i64, Owned>,
    pub(super) buffer: VecDeque<Buffered>,
    bytes: usize,
    /// Partitions of which nothing is given.
    held: HashSet<i64>,
    pub(super) failure: Option<TransportError>,
    pub(super) closing: bool,
    /// Records were left in the file because the buffer was full.
    behind: bool,
}

/// A record that was read ahead.
pub(super) struct Buffered {
    pub(super) partition: i64,
    pub(super) delivery: Delivery,
    size: usize,
}

/// A partition that the member has.
pub(super) struct Owned {
    topic: String,
    number: i32,
    epoch: i64,
    /// The next offset to read.
    fetch: i64,
    /// Records below are with the handler, or were.
    pub(super) delivered: i64,
    /// Records below are acknowledged.
    pub(super) acknowledged: i64,
    /// Since when another member should have it.
    leaving: Option<Instant>,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes what is next for the handler.
    pub(super) fn take(&mut self, most: usize) -> Vec<Delivery> {
        let (mut taken, mut rest) = (Vec::new(), VecDeque::new());
        for buffered in self.buffer.drain(..) {
            if taken.len() == most || self.held.contains(&buffered.partition) {
                rest.push_back(buffered);
                continue;
            }
            self.bytes -= buffered.size;
            if let Some(owned) = self.owned.get_mut(&buffered.partition) {
                owned.delivered = buffered.delivery.place.offset + 1;
            }
            taken.push(buffered.delivery);
        }
        self.buffer = rest;
        taken
    }

    /// Gives nothing of these, and again of all others.
    pub(super) fn hold(&mut self, partitions: &[(String, i32)]) {
        let is_held = |owned: &Owned| partitions.iter().any(|(topic, n)| owned.number == *n && owned.topic == *topic);
        self.held = self.owned.iter().filter(|(_, owned)| is_held(owned)).map(|(partition, _)| *partition).collect();
        self.behind = true;
    }

    /// What waits and may be given, in records and bytes.
    fn waiting(&self) -> (usize, usize) {
        if self.held.is_empty() || planted::is("held-takes-room") {
            return (self.buffer.len(), self.bytes);
        }
        let open = self.buffer.iter().filter(|buffered| !self.held.contains(&buffered.partition));
        open.fold((0, 0), |(records, bytes), buffered| (records + 1, bytes + buffered.size))
    }

    /// Whether the thread has a reason to look at once.
    pub(super) fn wants_thread(&self) -> bool {
        self.closing
            || (self.behind && self.waiting().0 < MOST_RECORDS / 2)
            || self.owned.values().any(|owned| owned.leaving.is_some())
    }

    /// The partitions of these places with the offsets behind them; places of partitions that are the
    /// member's no more, or not under that assignment, are passed over.
    pub(super) fn handled(&self, places: &[Place]) -> Vec<(Held, i64)> {
        let mut handled: HashMap<i64, (Held, i64)> = HashMap::new();
        for place in places {
            let own = self.owned.iter().find(|(_, owned)| {
                owned.number == place.partition && owned.topic == place.topic && owned.epoch as u64 == place.assignment
            });
            if let Some((&partition, owned)) = own {
                let entry = handled.entry(partition).or_insert((Held { partition, epoch: owned.epoch }, 0));
                entry.1 = entry.1.max(place.offset + 1);
            }
        }
        handled.into_values().collect()
    }

    /// Takes note of what was acknowledged.
    pub(super) fn acknowledged(&mut self, handled: &[(Held, i64)]) {
        for (held, next) in handled {
            if let Some(owned) = self.owned.get_mut(&held.partition).filter(|owned| owned.epoch == held.epoch) {
                owned.acknowledged = owned.acknowledged.max(*next);
            }
        }
    }

    /// Forgets what was read ahead of a partition and not delivered.
    fn drop_buffered(&mut self, partition: i64) {
        let mut freed = 0;
        self.buffer.retain(|b| {
            let stays = b.partition != partition;
            freed += if stays { 0 } else { b.size };
            stays
        });
        self.bytes -= freed;
        if let Some(owned) = self.owned.get_mut(&partition) {
            owned.fetch = owned.delivered;
        }
    }

    fn room(&self) -> usize {
        let (records, bytes) = self.waiting();
        if bytes >= MOST_BYTES { 0 } else { MOST_RECORDS.saturating_sub(records) }
    }
}

/// A row of the member's assignments.
struct Assigned {
    partition: i64,
    topic: String,
    number: i32,
    next: i64,
    epoch: i64,
    leaving: bool,
}

pub(super) struct Member {
    pub(super) inner: Arc<Inner>,
    pub(super) shared: Arc<Shared>,
    pub(super) connection: Connection,
    pub(super) group: String,
    pub(super) topics: Vec<String>,
    pub(super) who: Membership,
    /// The file's change counter and the group's generation, as they were last seen.
    pub(super) version: i64,
    pub(super) generation: i64,
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

impl Member {
    /// The thread. Ends when the subscription is closed or dropped, and then tells `left`.
    pub(super) fn run(mut self, topics: Vec<i64>, left: oneshot::Sender<()>) {
        let this = thread::current();
        let watchers = self.inner.writer.watchers().clone();
        watchers.add(Watcher { group: self.who.group, topics, thread: this.clone() });
        self.work();
        watchers.remove(&this);
        let who = self.who;
        if let Err(error) = self.inner.writer.ask_blocking(move |log| groups::leave(log, who)) {
            tracing::debug!(%error, group = self.group, "a member could not take its leave; its lease will end");
        }
        // first, so that whoever waits and then closes the log has the last connection
        drop(self.connection);
        let _ = left.send(());
    }

    fn work(&mut self) {
        let (mut look, mut beat) = (SHORTEST_LOOK, self.next_beat());
        while !self.shared.state().closing {
            let result = self.look().and_then(|busy| {
                if Instant::now() >= beat {
                    beat = self.next_beat();
                    self.beat()?;
                }
                Ok(busy)
            });
            look = match result {
                Ok(true) => SHORTEST_LOOK,
                Ok(false) => look.mul_f64(1.5).min(LONGEST_LOOK),
                Err(error) => {
                    self.fail(error);
                    LONGEST_LOOK
                }
            };
            thread::park_timeout(look.min(beat.saturating_duration_since(Instant::now())));
        }
    }

    /// Three in a lease. The members of one process give their signs of life at the same moments, so
    /// that one commit does for all.
    fn next_beat(&self) -> Instant {
        let every = self.inner.settings.lease / 3;
        let beats = self.inner.opened.elapsed().as_nanos() / every.as_nanos().max(1) + 1;
        self.inner.opened + every.saturating_mul(u32::try_from(beats).unwrap_or(u32::MAX))
    }

    /// Tells the subscription what went wrong; the thread goes on trying.
    fn fail(&mut self, error: Box<dyn std::error::Error + Send + Sync>) {
        let doing = format!("reading the log for group {:?}", self.group);
        self.shared.state().failure = Some(TransportError::transient(doing, error));
        self.version = -1;
        self.shared.ready.notify_one();
    }

    /// Looks whether anything has changed, and does what follows. True when it concerned this member:
    /// the signs of life of others change the file, too.
    fn look(&mut self) -> Result<bool> {
        let version = self.number("PRAGMA data_version")?;
        let changed = version != self.version;
        let generation = self.generation;
        if changed {
            self.version = version;
            self.assignments()?;
        }
        self.hand_over()?;
        let fetch = changed || self.shared.state().behind;
        let fetched = fetch && self.fetch()?;
        Ok(fetched || self.generation != generation)
    }

    fn number(&self, sql: &str) -> rusqlite::Result<i64> {
        self.connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
    }

    /// Takes in new assignments, if the group's have changed.
    fn assignments(&mut self) -> Result<()> {
        let mut statement = self.connection.prepare_cached(include_str!("../../sql/embedded/generation.sql"))?;
        let generation = statement.query_row([self.who.group], |row| row.get(0)).optional()?.unwrap_or(-1);
        if generation == self.generation {
            return Ok(());
        }
        let mut statement = self.connection.prepare_cached(include_str!("../../sql/embedded/owned.sql"))?;
        let rows = statement.query_map([self.who.group, self.who.member], |row| {
            Ok(Assigned {
                partition: row.get(0)?,
                topic: row.get(1)?,
                number: row.get(2)?,
                next: row.get(3)?,
                epoch: row.get(4)?,
                leaving: row.get(5)?,
            })
        })?;
        let assigned = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        self.generation = generation;
        let mut state = self.shared.state();
        let lost: Vec<i64> = state
            .owned
            .iter()
            .filter(|(partition, owned)| !assigned.iter().any(|a| a.partition == **partition && a.epoch == owned.epoch))
            .map(|(partition, _)| *partition)
            .collect();
        for partition in lost {
            state.drop_buffered(partition);
            state.owned.remove(&partition);
        }
        for a in assigned {
            let owned = state.owned.entry(a.partition).or_insert_with(|| Owned {
                topic: a.topic,
                number: a.number,
                epoch: a.epoch,
                fetch: a.next,
                delivered: a.next,
                acknowledged: a.next,
                leaving: None,
            });
            match (a.leaving, owned.leaving) {
                (true, None) => {
                    owned.leaving = Some(Instant::now());
                    state.drop_buffered(a.partition);
                }
                (false, Some(_)) => owned.leaving = None,
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives partitions away that another should have, once nothing of them is with the handler.
    fn hand_over(&mut self) -> Result<()> {
        let longest = self.inner.settings.handover;
        let ready: Vec<Held> = {
            let state = self.shared.state();
            let is_ready = |owned: &Owned| {
                owned.leaving.is_some_and(|since| {
                    owned.acknowledged >= owned.delivered
                        || since.elapsed() >= longest
                        || planted::is("eager-hand-over")
                })
            };
            let ready = state.owned.iter().filter(|(_, owned)| is_ready(owned));
            ready.map(|(partition, owned)| Held { partition: *partition, epoch: owned.epoch }).collect()
        };
        if ready.is_empty() {
            return Ok(());
        }
        let who = self.who;
        self.inner.writer.ask_blocking(move |log| groups::hand_over(log, who, &ready))?;
        self.assignments()
    }

    /// Reads ahead. True when there was something.
    fn fetch(&mut self) -> Result<bool> {
        let mut any = false;
        loop {
            let wanted: Vec<(i64, i64, i64)> = {
                let state = self.shared.state();
                let is_open = |at: &i64, owned: &Owned| owned.leaving.is_none() && !state.held.contains(at);
                let open = state.owned.iter().filter(|(partition, owned)| is_open(partition, owned));
                open.map(|(partition, owned)| (*partition, owned.fetch, owned.epoch)).collect()
            };
            let mut more = false;
            for (partition, from, epoch) in wanted {
                let room = self.shared.state().room().min(AT_ONCE);
                if room == 0 {
                    self.shared.state().behind = true;
                    return Ok(any);
                }
                let mut rows = self.read(partition, from, room)?;
                if let Some(owned) = self.shared.state().owned.get(&partition) {
                    missing::tell(&self.group, &owned.topic, owned.number, from, &mut rows);
                }
                more |= rows.len() == room;
                any |= !rows.is_empty();
                self.buffer(partition, epoch, rows);
            }
            if !more {
                self.shared.state().behind = false;
                return Ok(any);
            }
        }
    }

    fn read(&self, partition: i64, from: i64, most: usize) -> Result<Vec<(i64, RawRecord)>> {
        let mut statement = self.connection.prepare_cached(include_str!("../../sql/embedded/fetch.sql"))?;
        let range = (log::at(partition, from), log::at(partition, log::OFFSETS - 1), most as i64);
        let mut rows = statement.query(range)?;
        let mut read = Vec::new();
        while let Some(row) = rows.next()? {
            read.push((log::offset(row.get(0)?), frame::record(row)?));
        }
        Ok(read)
    }

    /// Puts records into the buffer, if the partition is still the member's.
    fn buffer(&self, partition: i64, epoch: i64, rows: Vec<(i64, RawRecord)>) {
        let mut guard = self.shared.state();
        let state = &mut *guard;
        let Some(owned) = state.owned.get_mut(&partition).filter(|o| o.epoch == epoch) else { return };
        for (offset, record) in rows {
            let length = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
            let headers: usize = record.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
            let size = length(&record.key) + headers + length(&record.payload);
            let place =
                Place { topic: owned.topic.clone(), partition: owned.number, offset, assignment: owned.epoch as u64 };
            owned.fetch = offset + 1;
            state.bytes += size;
            state.buffer.push_back(Buffered { partition, delivery: Delivery { place, record }, size });
        }
        drop(guard);
        self.shared.ready.notify_one();
    }

    /// A sign of life. A member that was taken for dead meanwhile joins again.
    fn beat(&mut self) -> Result<()> {
        if planted::is("no-sign-of-life") {
            return Ok(());
        }
        let (who, lease) = (self.who, self.inner.settings.lease);
        if self.inner.writer.ask_blocking(move |log| groups::renew(log, who, lease))? {
            return Ok(());
        }
        tracing::warn!(group = self.group, "a member was taken for dead; it joins its group again");
        let (group, topics, partitions) = (self.group.clone(), self.topics.clone(), self.inner.settings.partitions);
        let joined = move |log: &mut Open<'_>| groups::join(log, &group, &topics, partitions, lease);
        (self.who, _) = self.inner.writer.ask_blocking(joined)?;
        self.shared.state().who = Some(self.who);
        self.generation = -1;
        self.assignments()
    }
}
